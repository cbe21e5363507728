"""A node that is not ready: since when, in words, and what frees that which its pods hold. Pure.

Kubernetes frees nothing of such a node by itself: its containers may still run, if it is only cut off. The
pods stay, at first as they were, later Terminating, until somebody says that the node is gone (Kubernetes'
documentation, "Node Shutdowns": non-graceful node shutdown, and pod garbage collection).
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, text
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
_LONGEST_TIME = 40


def not_ready_since(node: Mapping[str, Any]) -> str | None:
    """Since when a raw node of any shape is not ready, as its condition has it; None: it is.

    A node without that condition counts as ready. Empty: it is not ready, and nobody says since when.
    """
    for condition in mappings(mapping(node.get("status")).get("conditions")):
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return text(condition.get("lastTransitionTime"))[:_LONGEST_TIME]
    return None


def not_ready_text(since: str) -> str:
    """``not ready since 2026-11-25 10:30 UTC``; `since` as `not_ready_since` has it."""
    day, _, hour = one_line(since).partition("T")
    return f"not ready since {day} {hour[:5]} UTC" if day and hour else "not ready"


def if_it_is_dead(name: str) -> str:
    """What an administrator does to free what the pods of this node hold."""
    return f"kubectl taint node {name} {OUT_OF_SERVICE}, or kubectl delete node {name}"
