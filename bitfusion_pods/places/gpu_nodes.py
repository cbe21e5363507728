"""The cluster's GPUs as far as this account may see them: nodes, and the GPU pods of its namespace. Pure."""

from __future__ import annotations

import json

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kernel_state.activity import UNKNOWN, KernelActivity, activity_from_json
from bitfusion_client.kubernetes.raw_objects import annotations_of, labels_of, mapping, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import ANNOTATION_HOLDS, ANNOTATION_STATE, LABEL_GPU_POD_OF
from bitfusion_pods.places.statuses import node_of, phase_of, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bitfusion_client.kubernetes.raw_objects import RawObject

PRODUCT_LABEL, MEMORY_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
"""Written by NVIDIA's GPU feature discovery; memory in MiB, of each."""
MOST_GPUS = 256
"""Of one node that are listed."""
LONGEST = 80  # characters of a name
LONGEST_STATE = 1000
"""Characters of an annotation that anybody who may edit pods can write."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A GPU pod.

    Attributes:
        pod: Its name.
        node: Where it is; empty: it waits for one.
        gpus: How many it holds, or waits for.
        size: What it holds, in options: ``-n 1 -p 0.5``.
        since: When it was made, in seconds since the epoch; None: unknown.
        activity: What its kernel does, as its client has written it, or anybody else.
    """

    pod: str
    node: str
    gpus: int
    size: str
    since: float | None
    activity: KernelActivity = UNKNOWN


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node, or what is known of it.

    Attributes:
        name: Its name.
        gpus: How many it offers; None: this account may not see nodes.
        model: Of its GPUs; may be empty.
        memory_mib: Of each; 0: unknown.
        holdings: The namespace's GPU pods on it.
    """

    name: str
    gpus: int | None
    model: str
    memory_mib: int
    holdings: tuple[Holding, ...]


def gpu_nodes(
    nodes: Iterable[RawObject] | None, pods: Iterable[RawObject], resources: Sequence[str]
) -> tuple[list[GpuNode], list[Holding]]:
    """Nodes with GPUs in the order of their names, and who waits in the order of their making.

    Args:
        nodes: Raw nodes; None where they may not be read.
        pods: Raw pods of the namespace; only GPU pods that are not over count.
        resources: Names of the resources that are GPUs: `size_rules.gpu_resources`.
    """
    holdings = sorted(filter(None, map(_holding, pods)), key=lambda each: (each.since or 0.0, each.pod))
    on: dict[str, list[Holding]] = {}
    for holding in holdings:
        on.setdefault(holding.node, []).append(holding)
    waiting = on.pop("", [])
    found = []
    for node in nodes or ():
        name = text(metadata_of(node).get("name"))
        offered = _offered(mapping(mapping(node.get("status")).get("allocatable")), resources)
        if offered or name in on:
            found.append(_node(name, offered, labels_of(node), on.pop(name, [])))
    found += [GpuNode(name, None, "", 0, tuple(held)) for name, held in on.items()]
    return sorted(found, key=lambda each: each.name), waiting


def has_gpus(node: object, resources: Sequence[str]) -> bool | None:
    """Whether a node has GPUs at all; None: nobody says so, or a device plugin of its is away just now."""
    capacity = mapping(mapping(mapping(node).get("status")).get("capacity"))
    told = [capacity.get(name) for name in resources if name in capacity]
    if any(map(_whole, told)):
        return True
    return None if told or not resources or not capacity else False


def _node(name: str, offered: int, labels: RawObject, held: list[Holding]) -> GpuNode:
    model = one_line(text(labels.get(PRODUCT_LABEL)), LONGEST)
    return GpuNode(name, offered, model, _whole(labels.get(MEMORY_LABEL)), tuple(held))


def _offered(allocatable: RawObject, resources: Sequence[str]) -> int:
    return min(MOST_GPUS, sum(_whole(allocatable.get(name)) for name in resources))


def _holding(pod: RawObject) -> Holding | None:
    metadata, annotations = metadata_of(pod), annotations_of(pod)
    if LABEL_GPU_POD_OF not in labels_of(pod) or phase_of(pod) in ("Succeeded", "Failed"):
        return None
    if ANNOTATION_HOLDS not in annotations:  # of `bitfusion health --connect`
        return None
    size = one_line(text(annotations.get(ANNOTATION_HOLDS)), LONGEST)
    since = seconds(metadata.get("creationTimestamp"))
    words = size.split()
    gpus = _whole(words[words.index("-n") + 1]) if "-n" in words[:-1] else 0
    activity = _activity(text(annotations.get(ANNOTATION_STATE)))
    return Holding(text(metadata.get("name")), node_of(pod), max(1, gpus), size, since, activity)


def _activity(told: str) -> KernelActivity:
    try:
        return activity_from_json(json.loads(told)) if 0 < len(told) <= LONGEST_STATE else UNKNOWN
    except (ValueError, RecursionError):
        return UNKNOWN


def _whole(value: object) -> int:
    told = text(value) if not isinstance(value, int) or isinstance(value, bool) else str(value)
    return int(told) if told.isascii() and told.isdigit() and len(told) <= 9 else 0
