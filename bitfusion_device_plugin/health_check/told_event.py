"""The Event on the CronJob that tells the result: `kubectl describe cronjob` shows it.

There is one for each result, which later runs renew: its name follows from the CronJob and the reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bitfusion_client.kubernetes.raw_objects import metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_cluster.api.client import KubernetesApi, Timeout
from bitfusion_cluster.api.errors import (
    ApiError,
    Conflict,
    NoAnswer,
    NotFound,
    ServerError,
    TooManyRequests,
)
from bitfusion_cluster.api.events import (
    LONGEST_MESSAGE,
    NORMAL,
    WARNING,
    Said,
    about,
    event_count,
    event_object,
    event_renewal,
)
from bitfusion_cluster.api.paths import cron_job_path, events_path
from bitfusion_device_plugin.health_check.verdict import FATAL, MARGINAL, PASSED, UNKNOWN, Verdict

COMPONENT = "bitfusion-health-check"
REASONS = {
    PASSED: "BitfusionHealthPassed",
    MARGINAL: "BitfusionHealthMarginal",
    FATAL: "BitfusionHealthFatal",
    UNKNOWN: "BitfusionHealthUnknown",
}
TIMEOUT: Timeout = (3.0, 5.0)
MOST_TRIES = 3
PAUSE_S = 2.0


def tell(api: KubernetesApi, namespace: str, cron_job: str, found: Verdict, pod: str) -> None:
    """Write the Event, or renew it. Raises ApiFailure; a server that is away is asked `MOST_TRIES` times.

    `pod` is the one whose log has the report.
    """
    for tries in range(1, MOST_TRIES + 1):
        try:
            _write(api, event_body(namespace, cron_job, _uid(api, namespace, cron_job), found, pod))
            return
        except (NoAnswer, ServerError, TooManyRequests):
            if tries == MOST_TRIES:
                raise
            time.sleep(PAUSE_S)


def _write(api: KubernetesApi, body: Mapping[str, Any]) -> None:
    path = events_path(body["metadata"]["namespace"])
    try:
        api.create(path, body, timeout=TIMEOUT)
    except Conflict:  # an earlier run has told the same
        own = f"{path}/{body['metadata']['name']}"
        try:
            renewed = api.merge(own, event_renewal(body), timeout=TIMEOUT)
            api.merge(own, event_count(renewed), timeout=TIMEOUT)
        except NotFound:  # its hour has ended in between
            api.create(path, body, timeout=TIMEOUT)


def _uid(api: KubernetesApi, namespace: str, cron_job: str) -> str:
    """Of the CronJob; empty where there is none of that name or no right to look: its Event is worth more."""
    try:
        raw = api.get(cron_job_path(namespace, cron_job), timeout=TIMEOUT)
    except (ServerError, TooManyRequests):
        raise
    except ApiError:
        return ""
    return text(metadata_of(raw).get("uid"))


def event_body(namespace: str, cron_job: str, uid: str, found: Verdict, pod: str) -> dict[str, Any]:
    """The Event to be created. Without a uid `kubectl get events` has it, and `kubectl describe` has not."""
    log = f". The report: kubectl logs {pod} --namespace {namespace}"
    message = one_line(found.message, LONGEST_MESSAGE - len(log)) + log
    said = Said(WARNING if found.failed else NORMAL, REASONS[found.result], message)
    whom = about("batch/v1", "CronJob", namespace, cron_job, uid)
    return event_object(whom, said, COMPONENT, pod, one_for_its_reason=True)
