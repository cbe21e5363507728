"""Whether the pool's units can be sold twice, although every node offers the whole pool. Pure.

What protects is the queue: the injector gives every pod with units a scheduling gate, and the queue lifts it
once its units are free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bitfusion_pool.admin.kubernetes.cluster_objects import ClusterObjects

FIRST_WITH_GATES = (1, 27)
"""Since this version scheduling gates are on by default (KEP-3521)."""

NOT_PROTECTED = "not protected against overselling"
_SHOWN = 3
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


def unprotected(objects: ClusterObjects) -> tuple[str, ...]:
    """Why the pool can be sold twice, a text for each reason; empty: it can't."""
    reasons = []
    newest = newest_version(node.kubelet for node in objects.nodes)
    if newest is not None and newest < FIRST_WITH_GATES:
        major, minor = newest
        reasons.append(
            f"this is Kubernetes {major}.{minor} by its nodes, and there are no scheduling gates below 1.27"
        )
    if not objects.queues:
        reasons.append("no pod of the account bitfusion-queue is ready, so nobody lifts gates in order")
    ungated = [f"{pod.namespace}/{pod.name}" for pod in objects.pods if pod.counts and not pod.was_gated]
    if ungated:
        more = f" and {len(ungated) - _SHOWN} more" if len(ungated) > _SHOWN else ""
        reasons.append(f"the queue never lifted the gate of {', '.join(ungated[:_SHOWN])}{more}")
    return tuple(reasons)


def newest_version(versions: Iterable[str]) -> tuple[int, int] | None:
    """The newest of some kubelets' versions; None if none can be read.

    A kubelet is never newer than the API server, and may be older (Kubernetes' version skew policy): the
    newest one tells most of what the API server can do.
    """
    found = [_VERSION.match(version) for version in versions]
    return max(((int(match[1]), int(match[2])) for match in found if match), default=None)
