"""What the queue needs of a pod, read from the raw object: nothing else of it is kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

from bitfusion_client.kubernetes.names import QUEUE_CONDITION, QUEUE_GATE
from bitfusion_client.kubernetes.pod_units import units_of
from bitfusion_client.kubernetes.raw_objects import (
    is_being_deleted,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    notebook_owner,
    text,
)

FINISHED_PHASES = ("Succeeded", "Failed")
REMADE_KINDS = (
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "ReplicationController"),
)
"""Controllers that make a deleted pod anew. Others take it for a failure, a Job as a step towards its
``backoffLimit``, so their pods are not deleted."""
DEFAULT_SCHEDULER = "default-scheduler"
LONGEST_REFUSAL = 400  # characters of the scheduler's words that are kept
LONGEST_TOLD = 1024  # of what our condition says, which tenants might write, too
LONGEST_NAME = 254  # of a notebook, and one more: nobody looks at names in an ownerReference
MOST_GATES = 5  # of somebody else's that are kept by name
_UNPLACED = ("Unschedulable", "SchedulerError")


class PodState(Enum):
    """Where a pod stands between its creation and its end."""

    GATED = "gated"  # holds our gate: counts nothing yet
    KEPT = "kept"  # holds our gate, and its condition says that its units are kept: counts
    LIFTED = "lifted"  # has no gate of ours and no node: counts
    BOUND = "bound"  # on a node: counts, also while it ends
    FINISHED = "finished"  # Succeeded or Failed: its units are free again


@dataclass(frozen=True, slots=True)
class Told:
    """Our condition, as the pod has it. `index` is its place in ``status.conditions``."""

    index: int
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """One pod that asks for units, or stands at our gate without asking for any."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    """Empty once the pod is on a node: nothing is written to it any more."""
    created: str
    """RFC 3339 in UTC with whole seconds, as the API server writes it: sorts as text."""
    units: int
    state: PodState
    gate_index: int = -1
    """Where our gate stands in ``spec.schedulingGates``; -1 if it does not."""
    other_gates: tuple[str, ...] = ()
    """The first `MOST_GATES` gates of others, and ``…`` for more."""
    node: str = ""
    """Where it is; empty while it has no node."""
    leaving: bool = False
    """Whether somebody has deleted it already; always False without a node."""
    remade: bool = False
    """Whether its controller makes it anew after a deletion."""
    notebook: str = ""
    no_node: str = ""
    """Why no node has been found for it, in the scheduler's words, while it is LIFTED."""
    conditions: int = 0
    """How many conditions it has, ours among them."""
    told: Told | None = None

    @property
    def key(self) -> tuple[str, str]:
        """As caches and work queues name it."""
        return self.namespace, self.name

    @property
    def order(self) -> tuple[str, str, str]:
        """Its place in the queue: by creation, and among those of one second by namespace and name."""
        return self.created, self.namespace, self.name

    @property
    def has_queued(self) -> bool:
        """Whether its gate was lifted by the queue: a pod without it counts, and nobody held it back."""
        return self.told is not None and self.told.status == "True"


def queued_pod(raw: Mapping[str, Any]) -> QueuedPod | None:
    """The queue's view of a raw pod of any shape; None if it asks for no units and is not at our gate.

    None, too, for one that is being deleted and has no node: the API server binds it to none any more
    (kube-apiserver, pkg/registry/core/pod/storage; a test sees it refused), so that it takes nothing and
    waits for nothing, however long somebody's finalizer keeps it.
    """
    units = units_of(raw)
    metadata, spec, status = metadata_of(raw), mapping(raw.get("spec")), mapping(raw.get("status"))
    if not units and not spec.get("schedulingGates"):
        return None
    node, leaving = text(spec.get("nodeName")), is_being_deleted(raw)
    if leaving and not node:
        return None
    # Not by `mappings`: what is no object must keep its place, or the index would be wrong.
    gates = [text(mapping(gate).get("name")) for gate in _items(spec.get("schedulingGates"))]
    if not units and QUEUE_GATE not in gates:
        return None
    conditions = _items(status.get("conditions"))
    told = _told(conditions)
    state = _state(spec, status, gates, told)
    waits = state not in (PodState.BOUND, PodState.FINISHED)
    return QueuedPod(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        resource_version=text(metadata.get("resourceVersion")) if waits else "",
        created=text(metadata.get("creationTimestamp")),
        units=units,
        state=state,
        gate_index=gates.index(QUEUE_GATE) if QUEUE_GATE in gates else -1,
        other_gates=_named(name for name in gates if name != QUEUE_GATE),
        node=node,
        leaving=leaving,
        remade=_is_remade(metadata),
        notebook=_notebook(raw),
        no_node=_no_node(spec, conditions) if state is PodState.LIFTED else "",
        conditions=len(conditions) if waits else 0,
        told=told,
    )


def _notebook(raw: Mapping[str, Any]) -> str:
    name = text(mapping(notebook_owner(raw)).get("name")) or text(labels_of(raw).get("notebook-name"))
    return name[:LONGEST_NAME]


def _named(gates: Iterable[str]) -> tuple[str, ...]:
    first = tuple(islice(gates, MOST_GATES + 1))
    return (*first[:MOST_GATES], "…") if len(first) > MOST_GATES else first


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _state(
    spec: Mapping[str, Any], status: Mapping[str, Any], gates: list[str], told: Told | None
) -> PodState:
    if status.get("phase") in FINISHED_PHASES:
        return PodState.FINISHED
    if text(spec.get("nodeName")):
        return PodState.BOUND
    if QUEUE_GATE not in gates:
        return PodState.LIFTED
    return PodState.KEPT if told is not None and told.status == "True" else PodState.GATED


def _told(conditions: list[object]) -> Told | None:
    for index, condition in enumerate(map(mapping, conditions)):
        if condition.get("type") == QUEUE_CONDITION:
            return Told(
                index,
                *(
                    text(condition.get(name))[:LONGEST_TOLD]
                    for name in ("status", "reason", "message", "lastTransitionTime")
                ),
            )
    return None


def _is_remade(metadata: Mapping[str, Any]) -> bool:
    return any(
        owner.get("controller") is True and (owner.get("apiVersion"), owner.get("kind")) in REMADE_KINDS
        for owner in mappings(metadata.get("ownerReferences"))
    )


def _no_node(spec: Mapping[str, Any], conditions: list[object]) -> str:
    # Its lastTransitionTime says nothing: the condition is False from the gate on (reason SchedulingGated),
    # and Kubernetes moves the time only when the status changes. The leader has to measure how long it lasts.
    for condition in map(mapping, conditions):
        if condition.get("type") != "PodScheduled" or condition.get("status") != "False":
            continue
        reason = text(condition.get("reason"))
        if reason in _UNPLACED:
            return (text(condition.get("message")) or reason)[:LONGEST_REFUSAL]
    # Kubernetes' own scheduler that says nothing is away, and sending pods back would help nobody. One of
    # another name may never have existed.
    scheduler = text(spec.get("schedulerName"))
    if scheduler in ("", DEFAULT_SCHEDULER):
        return ""
    return f"scheduler {scheduler[:100]} has not reported anything about it"
