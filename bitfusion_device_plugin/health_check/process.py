"""One run: the client's report to the log, its result as a line, an Event, figures and exit status."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

from bitfusion_client.command.client_reports import parse_health
from bitfusion_client.command.find_client import find_client
from bitfusion_client.errors import BitfusionError, ClientNotFound
from bitfusion_client.one_line import one_line
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_device_plugin.health_check.client_report import REPORT, ClientReport, run_health
from bitfusion_device_plugin.health_check.settings import Settings
from bitfusion_device_plugin.health_check.shown_metrics import figures, show
from bitfusion_device_plugin.health_check.told_event import tell
from bitfusion_device_plugin.health_check.verdict import Verdict, verdict

FAILED = 1
_LONGEST_LINE = 1000


def run(settings: Settings) -> None:
    """Check once. Raises SystemExit with `FAILED` where something is fatal or the pool could not be checked.

    Where Event or figures cannot be told, a line says so, and the result stays that of the check.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupted)
    for name in settings.ignored:
        _say(f"{name} is not a setting and is ignored")
    report = _report(settings)
    found = verdict(report.text, report.problem)
    _say(found.message)
    _tell(settings, found)
    if settings.show_metrics:
        registry = figures(parse_health(report.text), found, time.time())
        try:
            show(registry, settings.bind, settings.monitoring_port, settings.show_metrics)
        except OSError as error:
            place = f"port {settings.monitoring_port} of {settings.bind}"
            _say(f"No metrics are served: {place} cannot be opened: {error.strerror}. See --monitoring-port.")
    if found.failed:
        sys.exit(FAILED)


def _report(settings: Settings) -> ClientReport:
    try:
        client = find_client(settings.client, os.environ).path
    except ClientNotFound as error:
        return ClientReport("", error.user_message)
    return run_health([client], settings.limit, _show)


def _tell(settings: Settings, found: Verdict) -> None:
    try:
        api = KubernetesApi.load(settings.kubeconfig)
        try:
            tell(api, settings.namespace, settings.cron_job, found, socket.gethostname())
        finally:
            api.close()
    except BitfusionError as error:
        _say(f"No Event could be written: {error.user_message}")


def _show(what: str, data: bytes) -> None:
    """To our own output; where nobody reads it the pool is checked all the same."""
    with suppress(OSError):
        while data:
            data = data[os.write(1 if what == REPORT else 2, data) :]


def _say(words: str) -> None:
    with suppress(OSError):
        line = f"bitfusion-health-check: {one_line(words, _LONGEST_LINE)}"
        print(line, file=sys.stderr, flush=True)


def _interrupted(number: int, frame: object) -> NoReturn:
    sys.exit(FAILED)  # a check that was broken off has not passed
