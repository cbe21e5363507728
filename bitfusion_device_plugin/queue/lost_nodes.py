"""Units of pods whose node is not ready: they stay taken, since its containers may still run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that is not ready since then, as its condition has it, and the units of the pods on it."""

    name: str
    since: str
    units: int


def lost_nodes(
    pods: Iterable[QueuedPod], not_ready: Mapping[str, str]
) -> tuple[tuple[LostNode, ...], tuple[QueuedPod, ...]]:
    """Those nodes, the one with the most units first, and these pods."""
    if not not_ready:
        return (), ()
    on_them = tuple(pod for pod in pods if pod.state is PodState.BOUND and pod.node in not_ready)
    units: dict[str, int] = {}
    for pod in on_them:
        units[pod.node] = units.get(pod.node, 0) + pod.units
    found = [LostNode(name, not_ready[name], count) for name, count in units.items()]
    return tuple(sorted(found, key=lambda node: (-node.units, node.name))), on_them
