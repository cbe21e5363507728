"""`bitfusion list_gpus` and `smi`: the cluster's GPUs as far as this account may see them."""

from __future__ import annotations

import time

from bitfusion_client.clock_time import clock_time
from bitfusion_client.command.log_output import write_text
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_pods.size_rules import gpu_resources
from bitfusion_client.pod.pod_contract import LABEL_GPU_POD_OF
from bitfusion_client.text_table import box
from bitfusion_pods.api.client import Api, pods
from bitfusion_pods.command.asking import in_words, seen_gpus
from bitfusion_pods.command.where import here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pods.places.gpu_nodes import GpuNode, Holding

NO_NODES = "this account may not see the cluster's nodes, so only the GPU pods of its namespace are shown"
NO_OTHERS = "GPU pods of other namespaces are not visible: GPUs that look free may be held there"
NO_GPUS = "no GPU pod in this namespace holds or waits for a GPU"


def list_gpus(environ: Mapping[str, str]) -> int:
    """Nodes, GPUs and who holds them, on stdout."""
    write_text(1, list_gpus_text(*_look(environ), time.time()))
    return 0


def smi(environ: Mapping[str, str]) -> int:
    """The same as tables."""
    write_text(1, smi_text(*_look(environ), time.time()))
    return 0


def list_gpus_text(nodes: Sequence[GpuNode], waiting: Sequence[Holding], sees_nodes: bool, now: float) -> str:
    """The report in the client's form. Which GPU of a node a pod holds only the node knows: they are counted.

    Args:
        nodes: From `gpu_nodes`.
        waiting: Likewise.
        sees_nodes: Whether nodes may be read.
        now: Seconds since the epoch.
    """
    lines = []
    for number, node in enumerate(nodes):
        lines.append(f"- server {number} [{node.name}]: running {len(node.holdings)} tasks")
        held = [holding for holding in node.holdings for _ in range(holding.gpus)]
        for gpu in range(max(len(held), node.gpus or 0)):
            holder = held[gpu] if gpu < len(held) else None
            free = 0 if holder else node.memory_mib
            model = node.model or "GPU of the cluster"
            lines.append(f"   |- GPU {gpu}: free memory {free} MiB / {node.memory_mib} MiB ({model})")
            if holder:
                lines.append(f"   |  |- held by {_summary(holder, now)}")
    lines += [
        f"- waits: {_summary(holding, now)}" for holding in waiting
    ]  # no order: who is next nobody knows
    lines.append(f"- {NO_OTHERS if sees_nodes else NO_NODES}")
    if not nodes and not waiting:
        lines.append(f"- {NO_GPUS}")
    return "\n".join(lines) + "\n"


def smi_text(nodes: Sequence[GpuNode], waiting: Sequence[Holding], sees_nodes: bool, now: float) -> str:
    """Two tables: nodes, and the namespace's GPU pods."""
    rows = []
    for node in nodes:
        offered = "?" if node.gpus is None else str(node.gpus)
        held = str(sum(holding.gpus for holding in node.holdings))
        rows.append((node.name, node.model or "-", offered, held))
    text = box(("Node", "Model", "GPUs", "Held by this namespace"), rows, frozenset({2, 3}))
    holdings = [(holding, node.name) for node in nodes for holding in node.holdings]
    holdings += [(holding, "waits") for holding in waiting]
    if holdings:
        told = [
            (
                holding.pod,
                node,
                holding.size,
                "-" if holding.since is None else clock_time(holding.since, now),
                holding.activity.text(now) if holding.activity.state else "-",
            )
            for holding, node in holdings
        ]
        text += box(("GPU pod", "Node", "Size", "Since", "Kernel"), told)
    else:
        text += "No running tasks found\n"
    return text + ("" if sees_nodes else f"{NO_NODES[0].upper()}{NO_NODES[1:]}.\n")


def _summary(holding: Holding, now: float) -> str:
    since = _since(holding, now)
    activity = holding.activity.text(now) if holding.activity.state else ""
    return f"{holding.pod}: {holding.size}" + (since and f", since {since}") + (activity and f", {activity}")


def _since(holding: Holding, now: float) -> str:
    return "" if holding.since is None else clock_time(holding.since, now)


def _look(environ: Mapping[str, str]) -> tuple[list[GpuNode], list[Holding], bool]:
    where = here(environ)
    api = Api(where.account)
    try:
        with in_words():
            listed = api.items(pods(where.namespace, labelSelector=LABEL_GPU_POD_OF))
            return seen_gpus(api, listed, gpu_resources(where.settings.rules))
    finally:
        api.close()
