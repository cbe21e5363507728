"""The Event on the CronJob that tells the result: `kubectl describe cronjob` shows it.

There is one for each result, which later runs renew: its name follows from the CronJob and the reason.
"""

from __future__ import annotations

from typing import Any

from bitfusion_client.raw_objects import metadata_of, text
from bitfusion_device_plugin.health_check.verdict import FATAL, MARGINAL, PASSED, UNKNOWN, Verdict
from notebook_controller_patch.kubernetes_api.client import KubernetesApi
from notebook_controller_patch.kubernetes_api.errors import Conflict
from notebook_controller_patch.kubernetes_api.paths import cron_job_path, events_path
from notebook_controller_patch.kubernetes_event import NORMAL, WARNING, event_object

COMPONENT = "bitfusion-health-check"
REASONS = {
    PASSED: "BitfusionHealthPassed",
    MARGINAL: "BitfusionHealthMarginal",
    FATAL: "BitfusionHealthFatal",
    UNKNOWN: "BitfusionHealthUnknown",
}
_LOG = " The log of its newest job has the report."


def tell(api: KubernetesApi, namespace: str, cron_job: str, found: Verdict) -> None:
    """Write the Event, or renew it. Raises ApiFailure."""
    raw = api.get(cron_job_path(namespace, cron_job))
    body = event_body(namespace, cron_job, text(metadata_of(raw).get("uid")), found)
    path = events_path(namespace)
    try:
        api.create(path, body)
    except Conflict:  # an earlier run has told the same
        renewed = {key: body[key] for key in ("message", "lastTimestamp", "type")}
        api.merge(f"{path}/{body['metadata']['name']}", renewed)


def event_body(namespace: str, cron_job: str, uid: str, found: Verdict) -> dict[str, Any]:
    """The Event to be created."""
    about = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "namespace": namespace,
        "name": cron_job,
        "uid": uid,
    }
    kind = WARNING if found.failed else NORMAL
    message = f"{found.message}.{_LOG}" if found.result != PASSED else f"{found.message}."
    return event_object(about, kind, REASONS[found.result], message, COMPONENT, one_for_its_reason=True)
