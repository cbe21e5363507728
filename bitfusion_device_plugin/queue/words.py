"""What people are told about a pod: why it waits at its gate, and what becomes of it. Pure.

In the pod's condition, in Events (on the pod's Notebook where there is one, else on the pod itself), and so
in Kubeflow's form. That shows the first condition that has a reason, so ours is put before the scheduler's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.lost_node import if_it_is_dead, not_ready_text
from bitfusion_client.kubernetes.raw_objects import NOTEBOOK_KIND, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_cluster.api.events import Said, about, event_object
from bitfusion_device_plugin.queue.lost_nodes import LostNode
from bitfusion_device_plugin.queue.pod_states import QueuedPod

DEFAULT_NAME = "bitfusion-queue"

# Reasons of the condition `QUEUE_CONDITION`, and of Events behind `EVENT_PREFIX`: they change with the
# meaning only, messages also with the numbers.
WAITS = "WaitsForPool"
WAITS_FOR_NODE = "WaitsForLostNode"
POOL_AWAY = "PoolAway"
TOO_LARGE = "LargerThanPool"
OTHER_GATES = "OtherGates"
REFUSED = "LiftRefused"
LIFTED = "Lifted"
SENT_BACK = "SentBack"  # Events only
HOLDS_UP = "HoldsUpOthers"  # Events only
ON_LOST_NODE = "NodeLost"  # Events only
EVENT_PREFIX = "Bitfusion"


POOL = "the Bitfusion pool"
_LONGEST = 400  # characters of somebody else's words
_MOST_NODES = 3  # that are named


@dataclass(frozen=True, slots=True)
class Words:
    """A reason for programs, which changes with the meaning only, and a message for people."""

    reason: str
    message: str


def waits(
    units: int, taken: int, pool: int, position: int, waiting: int, first: int = 0, lost: Lost | None = None
) -> Words:
    """It stands in line for `units`; the first in line waits for `first`, which is told who could pass it."""
    place = f"position {position} of {waiting}"
    if not pool:
        away = "no node offers any: the pool is away, or its device plugin does not run"
        return Words(POOL_AWAY, f"Waits for {_units(units)} of {POOL}, and {away}; {place}.")
    order = f", whose first asks for {first}" if first and position > 1 and taken + units <= pool else ""
    said = f"Waits for {_units(units)} of {POOL}: {taken} of {pool} are taken"
    if lost is None:
        return Words(WAITS, f"{said}; {place} in the queue{order}.")
    return Words(WAITS_FOR_NODE, f"{said}, {lost.units}; {place} in the queue{order}. {lost.cure}")


@dataclass(frozen=True, slots=True)
class Lost:
    """Of units on nodes that are not ready: how many are where since when, and what frees them."""

    units: str
    cure: str


def lost(nodes: Sequence[LostNode]) -> Lost | None:
    """What those who wait are told of such nodes, the one with the most units first; None without any."""
    if not nodes:
        return None
    told = [f"{node.units} on node {node.name}, {not_ready_text(node.since)}" for node in nodes[:_MOST_NODES]]
    if len(nodes) > _MOST_NODES:
        told.append(f"{sum(node.units for node in nodes[_MOST_NODES:])} on others like these")
    dead = f"{nodes[0].name} is" if len(nodes) == 1 else f"such a node, as {nodes[0].name}, is"
    return Lost(f"of them {'; '.join(told)}", f"If {dead} dead, {_administrator(nodes[0].name)}.")


def on_lost_node(units: int, node: str, since: str) -> Words:
    """It holds units on a node that is not ready."""
    return Words(
        ON_LOST_NODE,
        f"Its node {node} is {not_ready_text(since)}, and its {_units(units)} of {POOL} "
        f"{'stays' if units == 1 else 'stay'} taken, as it may still run there. If the node is dead, "
        f"{_administrator(node)}.",
    )


def _administrator(node: str) -> str:
    return f"an administrator frees them: {if_it_is_dead(node)}"


def too_large(units: int, pool: int) -> Words:
    """It can never be placed with the pool as it is."""
    return Words(
        TOO_LARGE,
        f"Asks for {_units(units)}, and {POOL} has {pool} in all: stop it and choose a smaller size, or wait "
        "until the pool has grown. Others do not wait for it.",
    )


def other_gates(gates: Sequence[str]) -> Words:
    """Somebody else's gates hold it, too."""
    shown = one_line(", ".join(gates), _LONGEST)
    return Words(OTHER_GATES, f"Is held by {shown}; then it joins the queue for {POOL}.")


def refused(why: str) -> Words:
    """The API server does not let us lift its gate; `why` in its words."""
    return Words(
        REFUSED,
        f"Its turn for {POOL} has come, and the API server refuses to lift its gate, which is tried again: "
        f"{one_line(why, _LONGEST)}",
    )


def waits_again(units: int, taken: int, pool: int) -> Words:
    """Its units were kept, and do not fit: the pool has become smaller, or somebody came past the queue."""
    numbers = f"{taken} of {pool} are taken, those that were kept for it among them"
    return Words(WAITS, f"Waits again for {_units(units)} of {POOL}: {numbers}.")


def lifted(units: int) -> Words:
    """Its units are kept for it."""
    return Words(LIFTED, f"{_units(units)} of {POOL} {'is' if units == 1 else 'are'} kept for it.")


def sent_back(units: int, no_node: str) -> Words:
    """It was deleted, and its controller makes it anew, at the end of the queue."""
    return Words(
        SENT_BACK,
        f"No node can take it, and others wait for its {_units(units)} of {POOL}: it goes to the end of the "
        f"queue. The scheduler says: {one_line(no_node, _LONGEST)}",
    )


def holds_up(units: int, no_node: str) -> Words:
    """No node takes it, others wait, and it is not deleted: see `pod_states.REMADE_KINDS`."""
    said = one_line(no_node, _LONGEST)
    return Words(
        HOLDS_UP,
        f"No node can take it, and others wait for its {_units(units)} of {POOL}. It is not deleted, "
        "as nothing might make it anew, or a Job count it as failed: delete it, or make room for it. The "
        f"scheduler says: {said}",
    )


def _units(units: int) -> str:
    return "1 unit" if units == 1 else f"{units} units"


def event_about(pod: QueuedPod, notebook: Mapping[str, Any] | None) -> dict[str, str]:
    """Whom an Event is about: this raw Notebook, or the pod where there is none."""
    uid = text(metadata_of(notebook).get("uid")) if notebook is not None else ""
    if notebook is None or not uid:
        return about("v1", "Pod", pod.namespace, pod.name, pod.uid)
    version = text(notebook.get("apiVersion")) or "kubeflow.org/v1"
    return about(version, NOTEBOOK_KIND, pod.namespace, pod.notebook, uid)


def event_body(whom: Mapping[str, str], kind: str, words: Words, replica: str) -> dict[str, Any]:
    """The Event to be created. Its name follows from whom it is about and from its reason.

    So there is one for each reason, however often a notebook waits: positions change, reasons seldom.
    """
    said = Said(kind, EVENT_PREFIX + words.reason, words.message)
    return event_object(whom, said, DEFAULT_NAME, replica, one_for_its_reason=True)
