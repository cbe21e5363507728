"""GPU pods, and events of them, as the API server of Kubernetes 1.34 hands them out."""

from __future__ import annotations

from typing import Any

from bitfusion_pods.places.statuses import seconds

UID = "5c3f1b0e-8a7d-4d6e-9a55-0f6d2b1c9e77"
CREATED = "2026-11-25T10:00:00Z"
NOW_TEXT = "2026-11-25T10:01:00Z"
_now = seconds(NOW_TEXT)
assert _now is not None
NOW = _now

Raw = dict[str, Any]


def clock(second: int) -> str:
    """So many seconds after the pod was made."""
    return f"2026-11-25T10:{second // 60:02d}:{second % 60:02d}Z"


def condition(kind: str, status: str, reason: str = "", message: str = "", at: int = 0) -> Raw:
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": clock(at),
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def container(state: Raw, name: str = "program") -> Raw:
    running = "running" in state
    return {
        "name": name,
        "image": "quay.io/jupyter/tensorflow-notebook:2026-11-01",
        "imageID": "",
        "lastState": {},
        "ready": running,
        "restartCount": 0,
        "started": running,
        "state": state,
    }


def waiting(reason: str, message: str = "") -> Raw:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated(code: int, reason: str = "Error", message: str = "") -> Raw:
    return {
        "terminated": {
            "containerID": "containerd://2f0c",
            "exitCode": code,
            "reason": reason,
            "startedAt": clock(5),
            "finishedAt": clock(50),
            **({"message": message} if message else {}),
        }
    }


RUNNING: Raw = {"running": {"startedAt": clock(5)}}


def pod(
    *containers: Raw,
    phase: str = "Pending",
    node: str = "",
    conditions: list[Raw] | None = None,
    init: list[Raw] | None = None,
    **more: Any,
) -> Raw:
    """`more`: further fields of the status, `deleted` for the metadata, `spec` for the spec."""
    metadata: Raw = {"name": "nb-0-gpu-x7k2q", "namespace": "alice", "uid": UID, "creationTimestamp": CREATED}
    if "deleted" in more:
        metadata["deletionTimestamp"] = more.pop("deleted")
        metadata["deletionGracePeriodSeconds"] = 5
    spec: Raw = {
        "containers": [{"name": "program"}],
        "schedulerName": "default-scheduler",
        **more.pop("spec", {}),
    }
    if node:
        spec["nodeName"] = node
        conditions = [condition("PodScheduled", "True", at=2), *(conditions or [])]
    address = {"podIP": "10.0.0.7"} if phase == "Running" else {}
    status: Raw = {"phase": phase, "qosClass": "Burstable", "conditions": conditions or [], **address, **more}
    if containers:
        status["containerStatuses"] = list(containers)
    if init:
        status["initContainerStatuses"] = init
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def unscheduled(message: str, at: int = 1, reason: str = "Unschedulable") -> Raw:
    return pod(conditions=[condition("PodScheduled", "False", reason, message, at)])


_made = 0


def event(
    reason: str,
    message: str = "",
    at: int = 10,
    since: int | None = None,
    source: str = "kubelet",
    **more: Any,
) -> Raw:
    """As the kubelet and controllers write it."""
    global _made
    _made += 1
    involved = {"kind": "Pod", "namespace": "alice", "name": "nb-0-gpu-x7k2q", "uid": UID, "apiVersion": "v1"}
    if "field" in more:
        involved["fieldPath"] = more.pop("field")
    return {
        "metadata": {
            "name": f"nb-0-gpu-x7k2q.187b{_made:012x}",
            "namespace": "alice",
            "creationTimestamp": clock(at),
        },
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "source": {"component": source, "host": "n2"},
        "reportingComponent": source,
        "firstTimestamp": clock(at if since is None else since),
        "lastTimestamp": clock(at),
        "count": 1,
        "eventTime": None,
        "type": "Normal",
        **more,
    }


SHORT = (
    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/2 "
)
FULL = (
    f"{SHORT}nodes are available: 1 No preemption victims found for incoming pod, "
    "1 Preemption is not helpful for scheduling."
)
NO_GPU_NODE = f"{SHORT}nodes are available: 2 Preemption is not helpful for scheduling."
GATED = condition(
    "PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"
)


def on_n2(*containers: Raw, **more: Any) -> Raw:
    return pod(*containers, node="n2", **more)


def gated(gate: str, labels: Raw | None = None) -> Raw:
    made = pod(conditions=[GATED], spec={"schedulingGates": [{"name": gate}]})
    made["metadata"]["labels"] = labels or {}
    return made
