"""Units: how many the pool has, by what nodes report; who holds how many, and has held them for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.lost_node import not_ready_since
from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod


@dataclass(frozen=True, slots=True)
class NodeUnits:
    """A node that offers units, could offer some, or is not ready.

    Attributes:
        name: The node's.
        units: That it offers; 0 while it is not ready, or the pool is away.
        offers: Whether there is a pool behind it, which may be away.
        not_ready_since: As its condition has it; None: it is ready.
    """

    name: str
    units: int = 0
    offers: bool = True
    not_ready_since: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """As of an object that belongs to no namespace."""
        return "", self.name


def node_units(raw: Mapping[str, Any]) -> NodeUnits | None:
    """What a raw node of any shape offers; None if it is ready and has none. Quantities as ``5k`` are read.

    A node that is not ready offers nothing: it says for ever what it said last, which the pool may have been
    long ago. While the pool is away a kubelet shows all units in ``capacity`` and none in ``allocatable``.
    """
    status, name = mapping(raw.get("status")), text(metadata_of(raw).get("name"))
    since = not_ready_since(raw)
    if since is not None:
        return NodeUnits(name, 0, False, since)
    units, all_units = (
        unit_count(mapping(status.get(field)).get(RESOURCE_UNITS)) for field in ("allocatable", "capacity")
    )
    return NodeUnits(name, units) if units or all_units else None


def pool_size(nodes: Iterable[NodeUnits], from_zero: int = 0) -> int:
    """Units of the whole pool: every node's device plugin reports all of it, so the largest is right.

    A node that has just seen the pool grow or lost its plugin reports another number for a while. 0: no node
    offers any, the pool or all device plugins are away.

    Args:
        nodes: All of which something is known.
        from_zero: The size where no node is there that could offer any: nodes come when pods need them.
    """
    offered = [node.units for node in nodes if node.offers]
    return max(offered) if offered else from_zero


Holder = tuple[str, str]  # namespace, notebook; the latter is empty for pods outside of notebooks
MOST_HOLDERS = 2000
MOST_OF_ONE = 100  # notebooks of one namespace: a label of its pods names them, and no quota counts names
REST = "(others)"  # can be no notebook's name, as those are labels
OTHERS: Holder = ("", "others")
IDLE_S = 600.0  # after which a notebook that holds nothing may be forgotten: several scrapes long

_COUNTS = (PodState.KEPT, PodState.LIFTED, PodState.BOUND)


class UnitAccounts:
    """Used by one thread that writes; `held` and `seconds` are replaced or grow, and may be read by others.

    Args:
        most: Holders that are told apart. Beyond them those that have been idle for long are forgotten, and
            new ones count as `OTHERS`.
        most_of_one: The same of one namespace, whose new ones then count as its `REST`.
    """

    def __init__(self, most: int = MOST_HOLDERS, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
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
        counts = self._forget_idle(seconds, now)
        held: dict[Holder, int] = {}
        for pod in pods:
            if pod.state in _COUNTS and pod.units:
                holder = self._slot((pod.namespace, pod.notebook), seconds, counts)
                held[holder] = held.get(holder, 0) + pod.units
                self._last_held[holder] = now
        self.held, self.seconds = held, seconds

    def end(self) -> None:
        """Nothing is counted any more until the next look: another replica leads."""
        self._at = None
        self.held = {}

    def _slot(self, holder: Holder, seconds: dict[Holder, float], counts: Counter[str]) -> Holder:
        if holder not in seconds and counts[holder[0]] >= self._most_of_one:
            holder = holder[0], REST
        if holder not in seconds and len(seconds) >= self._most - (OTHERS not in seconds):
            holder = OTHERS
        if holder not in seconds:
            seconds[holder] = 0.0
            counts[holder[0]] += 1
        return holder

    def _forget_idle(self, seconds: dict[Holder, float], now: float) -> Counter[str]:
        """Make room where there is none; how many are left of each namespace."""
        counts = Counter(namespace for namespace, _ in seconds)
        full = len(seconds) >= self._most
        for holder in [
            one
            for one, last in self._last_held.items()
            if now - last >= IDLE_S and (full or counts[one[0]] >= self._most_of_one)
        ]:
            del self._last_held[holder], seconds[holder]
            counts[holder[0]] -= 1
        return counts
