"""Raw pods that ask for units, and what the queue keeps of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod, Told, queued_pod

GATE, CONDITION = "bitfusion.io/queue", "bitfusion.io/PoolUnits"
Object = dict[str, Any]


def raw_pod(
    name: str,
    units: object = 50,
    created: int = 0,
    namespace: str = "a",
    gates: tuple[str, ...] = (GATE,),
    node: str = "",
    phase: str = "Pending",
    owner: str | None = "apps/v1 StatefulSet",
    notebook: str = "",
    **spec: Any,
) -> Object:
    """A pod as the API server shows it, of `created` seconds past midnight; a StatefulSet's by default."""
    metadata: Object = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{namespace}-{name}-{created}",
        "creationTimestamp": created_at(created),
        "labels": {"notebook-name": notebook} if notebook else {},
    }
    if owner is not None:
        version, _, kind = owner.partition(" ")
        reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True}
        metadata["ownerReferences"] = [reference]
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"bitfusion.io/gpu": str(units)}}}],
            **({"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}),
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": phase, "conditions": [scheduled("SchedulingGated")] if gates else []},
    }


def scheduled(reason: str, message: str = "", status: str = "False") -> Object:
    """The scheduler's condition."""
    return {"type": "PodScheduled", "status": status, "reason": reason, "message": message}


def created_at(second: int) -> str:
    return f"2026-11-25T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def raw_node(name: str, units: object) -> Object:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "2", "bitfusion.io/gpu": units}}}


def seen(raw: Object) -> QueuedPod:
    """The same pod as the queue keeps it."""
    pod = queued_pod(raw)
    assert pod is not None
    return pod


def pod(
    name: str,
    units: int = 50,
    state: PodState = PodState.GATED,
    created: int = 0,
    no_node: str = "",
    **fields: Any,
) -> QueuedPod:
    """A pod for the pure parts, in any state."""
    gated = state in (PodState.GATED, PodState.KEPT)
    made = QueuedPod(
        namespace="a",
        name=name,
        uid=name,
        resource_version="1",
        created=created_at(created),
        units=units,
        state=state,
        gate_index=0 if gated else -1,
        remade=True,
        no_node=no_node,
        conditions=1,
        told=None if state is PodState.GATED else Told(0, "True", "Lifted", "", ""),
    )
    return replace(made, **fields)
