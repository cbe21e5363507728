"""Has a pod that computes on the cluster's own GPUs prefer the nodes that have them, if an admin says so.

A volume that one node at a time can mount (ReadWriteOnce, as the notebook form makes them) is mounted in the
GPU pod, too, which then has to be on the notebook's node. The nodes are never required: a notebook starts
where they are full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.raw_objects import mapping, mappings

WEIGHT = 100  # the most that there is: all other wishes of a notebook are about comfort
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """By what nodes with GPUs are known.

    Attributes:
        label: Of such nodes; empty: none is preferred.
        value: The label's; empty for any.
        taint: The key of the taint that keeps other pods away; empty: none is tolerated.
    """

    label: str = ""
    value: str = ""
    taint: str = ""


NOWHERE = GpuNodes()


def near_gpus(spec: Mapping[str, Any], nodes: GpuNodes) -> dict[str, Any]:
    """The fields of a pod's spec that change; what the pod says itself stays, and comes first."""
    changed: dict[str, Any] = {}
    affinity = spec.get("affinity") or {}
    node = mapping(affinity).get("nodeAffinity") or {}
    wishes = mapping(node).get(PREFERRED) or []
    # where one of them has an odd shape the API refuses the pod by itself
    whole = isinstance(affinity, dict) and isinstance(node, dict) and isinstance(wishes, list)
    if nodes.label and whole and not any(_names(wish, nodes.label) for wish in mappings(wishes)):
        wish = {"weight": WEIGHT, "preference": {"matchExpressions": [_expression(nodes)]}}
        changed["affinity"] = {**affinity, "nodeAffinity": {**node, PREFERRED: [*wishes, wish]}}
    tolerations = spec.get("tolerations") or []
    if nodes.taint and isinstance(tolerations, list) and not _tolerate(tolerations, nodes.taint):
        changed["tolerations"] = [*tolerations, {"key": nodes.taint, "operator": "Exists"}]
    return changed


def _tolerate(tolerations: object, taint: str) -> bool:
    return any(each.get("key") == taint for each in mappings(tolerations))


def _names(wish: Mapping[str, Any], label: str) -> bool:
    """Whether a wish is about these nodes: ours, or the pod's own, who may also wish to be elsewhere."""
    expressions = mappings(mapping(wish.get("preference")).get("matchExpressions"))
    return any(each.get("key") == label for each in expressions)


def _expression(nodes: GpuNodes) -> dict[str, Any]:
    if nodes.value:
        return {"key": nodes.label, "operator": "In", "values": [nodes.value]}
    return {"key": nodes.label, "operator": "Exists"}
