"""Units: how many the pool has, by what nodes report; who holds how many, and has held them for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod


@dataclass(frozen=True, slots=True)
class NodeUnits:
    """A node that offers units."""

    name: str
    units: int

    @property
    def key(self) -> tuple[str, str]:
        """As of an object that belongs to no namespace."""
        return "", self.name


def node_units(raw: Mapping[str, Any]) -> NodeUnits | None:
    """What a raw node of any shape offers; None if it offers nothing. Quantities such as ``5k`` are read.

    A node that is not ready offers nothing: it says for ever what it said last, which the pool may have been
    long ago.
    """
    status = mapping(raw.get("status"))
    for condition in mappings(status.get("conditions")):
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return None
    units = unit_count(mapping(status.get("allocatable")).get(RESOURCE_UNITS))
    return NodeUnits(text(metadata_of(raw).get("name")), units) if units else None


def pool_size(nodes: Iterable[NodeUnits]) -> int:
    """Units of the whole pool: every node's device plugin reports all of it, so the largest is right.

    A node that has just seen the pool grow or lost its plugin reports another number for a while. 0: no node
    offers any, the pool or all device plugins are away.
    """
    return max((node.units for node in nodes), default=0)


Holder = tuple[str, str]  # namespace, notebook; the latter is empty for pods outside of notebooks
MOST_HOLDERS = 2000
OTHERS: Holder = ("", "others")
IDLE_S = 600.0  # after which a notebook that holds nothing may be forgotten: several scrapes long

_COUNTS = (PodState.KEPT, PodState.LIFTED, PodState.BOUND)


class UnitAccounts:
    """Used by one thread that writes; `held` and `seconds` are replaced or grow, and may be read by others.

    Args:
        most: Holders that are told apart. Beyond them those that have been idle for long are forgotten, and
            new ones count as `OTHERS`.
    """

    def __init__(self, most: int = MOST_HOLDERS) -> None:
        self._most = most
        self._at: float | None = None
        self._last_held: dict[Holder, float] = {}
        self.held: dict[Holder, int] = {}
        self.seconds: dict[Holder, float] = {}

    def look(self, pods: Iterable[QueuedPod], now: float) -> None:
        """Count what was held since the last look, and who holds units now (monotonic seconds)."""
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        seconds = dict(self.seconds)
        for holder, units in self.held.items():
            seconds[holder] = seconds.get(holder, 0.0) + units * passed
            self._last_held[holder] = now
        if len(seconds) >= self._most:
            self._forget_idle(seconds, now)
        held: dict[Holder, int] = {}
        for pod in pods:
            if pod.state in _COUNTS and pod.units:
                holder = self._slot((pod.namespace, pod.notebook), seconds)
                held[holder] = held.get(holder, 0) + pod.units
                self._last_held[holder] = now
        self.held, self.seconds = held, seconds

    def end(self) -> None:
        """Nothing is counted any more until the next look: another replica leads."""
        self._at = None
        self.held = {}

    def _slot(self, holder: Holder, seconds: dict[Holder, float]) -> Holder:
        if holder not in seconds:
            if len(seconds) >= self._most - (OTHERS not in seconds):
                holder = OTHERS
            seconds.setdefault(holder, 0.0)
        return holder

    def _forget_idle(self, seconds: dict[Holder, float], now: float) -> None:
        for holder in [one for one, last in self._last_held.items() if now - last >= IDLE_S]:
            del self._last_held[holder], seconds[holder]
