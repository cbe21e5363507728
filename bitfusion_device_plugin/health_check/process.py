"""One run: the client's report to the log, then the Event and the figures, then the result."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn

from bitfusion_client.client_reports import parse_health
from bitfusion_client.errors import BitfusionError
from bitfusion_client.find_client import find_client
from bitfusion_client.one_line import one_line
from bitfusion_device_plugin.health_check.client_report import run_health
from bitfusion_device_plugin.health_check.pushed_metrics import figures, push
from bitfusion_device_plugin.health_check.settings import Settings
from bitfusion_device_plugin.health_check.told_event import tell
from bitfusion_device_plugin.health_check.verdict import Verdict, verdict
from notebook_controller_patch.kubernetes_api.client import KubernetesApi


class CheckFailed(BitfusionError):
    """Something is fatal, or the pool could not be checked: the job fails, and its log says so last."""

    headline = "The health check has failed."
    next_step = "the report is in the lines before this one"


def run(settings: Settings) -> None:
    """Check once.

    Where Event or figures cannot be told, a line says so, and the result stays that of the check.

    Raises:
        CheckFailed: It is not well.
        BitfusionError: There is no client.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupted)
    client = find_client(settings.client, os.environ).path
    report = run_health([client], settings.limit, _show)
    found = verdict(report.text, report.problem)
    _tell(settings, found)
    if settings.pushgateway:
        try:
            push(settings.pushgateway, figures(parse_health(report.text), found, time.time()))
        except (OSError, ValueError) as error:  # ValueError: it answered what is no HTTP
            _say(f"figures could not be pushed to {settings.pushgateway}: {error}")
    if found.failed:
        raise CheckFailed("", found.message)


def _tell(settings: Settings, found: Verdict) -> None:
    try:
        api = KubernetesApi.load(settings.kubeconfig)
        try:
            tell(api, settings.namespace, settings.cron_job, found)
        finally:
            api.close()
    except BitfusionError as error:
        _say(f"no Event could be written: {error.user_message}")


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _say(words: str) -> None:
    print(f"bitfusion-health-check: {one_line(words)}", file=sys.stderr, flush=True)


def _interrupted(number: int, frame: object) -> NoReturn:
    sys.exit(1)  # a check that was broken off has not passed
