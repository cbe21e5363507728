"""How many units the pool has, as the nodes report it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text


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
