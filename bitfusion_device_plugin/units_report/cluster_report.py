"""What pods count of the pool, beside who holds what of it: both sides put together. Pure.

What protects the pool's units from being sold twice, although every node offers the whole pool, is the queue:
the injector gives every pod with units a scheduling gate, and the queue lifts it once its units are free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitfusion_device_plugin.units_report.cluster_objects import LOST, AskingPod, ClusterObjects, Node
from bitfusion_device_plugin.units_report.pool_holders import CUT, NOTHING, AtThePool, Holder, holders

FIRST_WITH_GATES = (1, 27)
"""Since this version scheduling gates are on by default (KEP-3521)."""

_SHOWN = 3
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Somebody who holds GPUs, or more of them, than any pod accounts for."""

    holder: Holder
    at_pool: AtThePool
    why: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Everything that is shown.

    Where `objects` are of one namespace only, nobody knows of the queue, or who else has taken what.

    Attributes:
        objects: What the cluster has.
        unprotected: Why the pool can be sold twice; empty: it can't, or one namespace only was looked at.
        at_pool: What pods have at the pool; None where no pool was asked.
        unaccounted: Holders that no pod accounts for, of the namespaces that were looked at; empty where no
            pool was asked.
        no_pool: Why no pool was asked; empty: one was.
        left_out: How many leases and requests the pool did not show.
    """

    objects: ClusterObjects
    unprotected: list[str]
    at_pool: Mapping[AskingPod, AtThePool] | None = None
    unaccounted: list[Unaccounted] = field(default_factory=list)
    no_pool: str = ""
    left_out: int = 0

    def pods(self) -> list[tuple[AskingPod, AtThePool | None]]:
        """Each pod, and what its notebook has at the pool; None where no pool was asked."""
        has = self.at_pool
        return [(pod, None if has is None else has.get(pod, NOTHING)) for pod in self.objects.pods]

    @property
    def pool_units(self) -> int:
        """Units that a node offers, the most of any: each offers the whole pool."""
        return max((node.units for node in self.objects.nodes), default=0)

    @property
    def without_units(self) -> list[str]:
        """The names of the nodes that are ready and offer none."""
        return [node.name for node in self.objects.nodes if not node.units and node.not_ready_since is None]

    @property
    def lost(self) -> list[tuple[Node, int]]:
        """The nodes that are not ready and whose pods hold units, and how many; the most first."""
        units: dict[str, int] = {}
        for pod in self.objects.pods:
            if pod.state == LOST:
                units[pod.node] = units.get(pod.node, 0) + pod.units
        found = [(node, units[node.name]) for node in self.objects.nodes if node.name in units]
        return sorted(found, key=lambda one: -one[1])

    @property
    def taken(self) -> int:
        """Units of pods whose gate is lifted, or that never had one."""
        return sum(pod.units for pod in self.objects.pods if pod.counts)

    @property
    def free(self) -> int:
        """Units that are not taken; negative: the pool is oversold by so many."""
        return self.pool_units - self.taken

    @property
    def waiting(self) -> list[AskingPod]:
        """The pods that wait at a gate, and so count nothing yet."""
        return [pod for pod in self.objects.pods if not pod.counts]

    @property
    def waiting_units(self) -> int:
        """The units of these."""
        return sum(pod.units for pod in self.waiting)


def cluster_report(
    objects: ClusterObjects, status: Mapping[str, Any] | None, no_pool: str = ""
) -> ClusterReport:
    """The report.

    Args:
        objects: What the cluster has.
        status: What `bitfusion-pool status --json` says; None: the Kubernetes half is reported alone.
        no_pool: Why there is no such status.
    """
    only = objects.only_namespace
    reasons = [] if only else unprotected(objects)
    if status is None:
        return ClusterReport(objects, reasons, no_pool=no_pool)
    of_pods, unaccounted = _match(objects.pods, holders(status))
    seen = [one for one in unaccounted if not only or one.holder.namespace == only]
    return ClusterReport(objects, reasons, of_pods, seen, no_pool, status["left_out"])


def unprotected(objects: ClusterObjects) -> list[str]:
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
    return reasons


def newest_version(versions: Iterable[str]) -> tuple[int, int] | None:
    """The newest of some kubelets' versions; None if none can be read.

    A kubelet is never newer than the API server, and may be older (Kubernetes' version skew policy): the
    newest one tells most of what the API server can do.
    """
    found = [_VERSION.match(version) for version in versions]
    return max(((int(match[1]), int(match[2])) for match in found if match), default=None)


def _match(
    pods: Sequence[AskingPod], have: Mapping[Holder, AtThePool]
) -> tuple[dict[AskingPod, AtThePool], list[Unaccounted]]:
    """What each pod has at the pool, and who is left."""
    of_pods: dict[AskingPod, AtThePool] = {}
    for holder, has in have.items():
        pod = _pod_of(pods, holder)
        if pod is not None:
            of_pods[pod] = of_pods.get(pod, NOTHING).plus(has)
    left = []
    for holder, has in sorted(have.items(), key=lambda item: item[0].user):
        pod = _pod_of(pods, holder)
        why = _why_left(holder, pod, of_pods[pod].held if pod is not None else 0)
        if why and has.leases:
            left.append(Unaccounted(holder, has, why))
    return of_pods, left


def _pod_of(pods: Sequence[AskingPod], holder: Holder) -> AskingPod | None:
    """The pod that a holder says it is, one that has a node if there are several."""
    if not holder.notebook:
        return None
    found = [pod for pod in pods if pod.namespace == holder.namespace and _is_called(pod, holder.notebook)]
    return min(found, key=lambda pod: not pod.node, default=None)


def _is_called(pod: AskingPod, name: str) -> bool:
    known = pod.notebook or pod.name
    return known.startswith(name[:-1]) if name.endswith(CUT) else known == name


def _why_left(holder: Holder, pod: AskingPod | None, held: int) -> str:
    if not holder.of_token:
        return "a user of the pool's own machine"
    if not holder.namespace:
        return "a token of no namespace"
    if holder.claims:
        return f"claims to be {holder.claims}, but uses another namespace's token"
    if not holder.notebook:
        return "names no notebook: not a pod of the cluster, or a pod without an injected client"
    if pod is None:
        return "no pod with units has this name"
    if not pod.node:
        return "its pod has no node yet, so the holder is somebody else"
    if held > pod.units:
        return f"its pod has {pod.units} units"
    return ""
