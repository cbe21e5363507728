"""The JSON patches of a pod: its condition, and the removal of our gate. Pure.

Each begins with tests on uid and resourceVersion, so that it is refused unless the pod is exactly as it was
seen. It is what makes a request that is late harmless, however late: see `decisions.py`.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from bitfusion_client.kubernetes.names import QUEUE_CONDITION, QUEUE_GATE
from bitfusion_device_plugin.queue.pod_states import QueuedPod
from bitfusion_device_plugin.queue.words import Words

Operation = dict[str, Any]
LONGEST_MESSAGE = 1024


def wait_patch(pod: QueuedPod, words: Words, now: float) -> list[Operation]:
    """Of the pod's status: it waits, or waits again.

    The condition comes first: Kubeflow's form (since 1.6) shows the first condition with a reason, which
    would be the scheduler's general one of gates.
    """
    return _condition_patch(pod, "False", words, now, "0")


def keep_patch(pod: QueuedPod, words: Words, now: float) -> list[Operation]:
    """Of the pod's status: its units are kept.

    The condition comes last: from here on the first one with a reason is the scheduler's, why no node takes
    the pod.
    """
    return _condition_patch(pod, "True", words, now, "-")


def lift_patch(pod: QueuedPod) -> list[Operation]:
    """Of the pod: our gate is removed, and nothing else."""
    gate = f"/spec/schedulingGates/{pod.gate_index}"
    return [
        *_as_seen(pod),
        {"op": "test", "path": f"{gate}/name", "value": QUEUE_GATE},
        {"op": "remove", "path": gate},
    ]


def delete_options(pod: QueuedPod) -> dict[str, Any]:
    """To delete it only as it was seen: no node has been found for it meanwhile."""
    preconditions = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}


def _condition_patch(pod: QueuedPod, status: str, words: Words, now: float, place: str) -> list[Operation]:
    told = pod.told
    same = told is not None and told.status == status and told.since
    condition = {
        "type": QUEUE_CONDITION,
        "status": status,
        "reason": words.reason,
        "message": words.message[:LONGEST_MESSAGE],
        "lastTransitionTime": told.since if told is not None and same else _text_of(now),
    }
    operations = _as_seen(pod)
    if not pod.conditions:
        return [*operations, {"op": "add", "path": "/status/conditions", "value": [condition]}]
    if told is not None:
        operations.append({"op": "remove", "path": f"/status/conditions/{told.index}"})
    return [*operations, {"op": "add", "path": f"/status/conditions/{place}", "value": condition}]


def _as_seen(pod: QueuedPod) -> list[Operation]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": pod.resource_version},
    ]


def _text_of(now: float) -> str:
    return datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
