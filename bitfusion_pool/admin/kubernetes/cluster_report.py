"""What pods count of the pool, beside who holds what of it: both sides put together. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitfusion_pool.admin.kubernetes.cluster_objects import AskingPod, ClusterObjects, Quota
from bitfusion_pool.admin.kubernetes.protection import unprotected
from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.ledger.holder_place import CUT, HolderPlace, device_sizes, gpus_held, holder_place
from bitfusion_pool.ledger.snapshot import Snapshot

UNITS_OF_GPU = 100


@dataclass(frozen=True, slots=True)
class AtThePool:
    """What somebody has at the pool, in units.

    Attributes:
        held: Units of its leases.
        leases: How many leases.
        waiting: Requests that wait there.
    """

    held: int = 0
    leases: int = 0
    waiting: int = 0

    def plus(self, other: AtThePool) -> AtThePool:
        """Both together."""
        return AtThePool(self.held + other.held, self.leases + other.leases, self.waiting + other.waiting)


NOTHING = AtThePool()


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod, and what its notebook has at the pool; `at_pool` is None where no pool was asked."""

    pod: AskingPod
    at_pool: AtThePool | None


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Somebody who holds GPUs, or more of them, than any pod accounts for."""

    holder: str
    namespace: str
    place: str
    at_pool: AtThePool
    why: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Everything that is shown.

    Attributes:
        pool_units: Units that a node offers, the most of any: each offers the whole pool.
        nodes: How many nodes there are.
        without_units: The names of nodes that offer none.
        taken: Units of pods whose gate is lifted, or that never had one.
        waiting: Pods that wait at a gate, and so count nothing yet.
        waiting_units: The units of these.
        rows: The pods.
        quotas: The quotas on units.
        unprotected: Why the pool can be sold twice; empty: it can't.
        queues: The pods of the queue that are ready.
        unaccounted: Holders that no pod accounts for; empty where no pool was asked.
        no_pool: Why no pool was asked; empty: one was.
        only_namespace: The only namespace that was looked at; then nobody knows of the queue, or who else has
            taken what, and holders of other namespaces are not listed. Empty: all were.
        left_out: How many leases and requests the pool did not show.
    """

    pool_units: int
    nodes: int
    without_units: tuple[str, ...]
    taken: int
    waiting: int
    waiting_units: int
    rows: tuple[PodRow, ...]
    quotas: tuple[Quota, ...]
    unprotected: tuple[str, ...]
    queues: tuple[str, ...]
    unaccounted: tuple[Unaccounted, ...]
    no_pool: str = ""
    only_namespace: str = ""
    left_out: int = 0

    @property
    def free(self) -> int:
        """Units that are not taken; negative: the pool is oversold by so many."""
        return self.pool_units - self.taken


def cluster_report(objects: ClusterObjects, snapshot: Snapshot | None, no_pool: str = "") -> ClusterReport:
    """The report; without a snapshot of the pool its Kubernetes half, and `no_pool` says why."""
    pods = objects.pods
    at_pool, unaccounted = _match(pods, snapshot) if snapshot is not None else ({}, ())
    only = objects.only_namespace
    return ClusterReport(
        max((node.units for node in objects.nodes), default=0),
        len(objects.nodes),
        tuple(node.name for node in objects.nodes if not node.units),
        sum(pod.units for pod in pods if pod.counts),
        sum(not pod.counts for pod in pods),
        sum(pod.units for pod in pods if not pod.counts),
        tuple(PodRow(pod, None if snapshot is None else at_pool.get(pod, NOTHING)) for pod in pods),
        objects.quotas,
        () if only else unprotected(objects),
        objects.queues,
        tuple(one for one in unaccounted if not only or one.namespace == only),
        no_pool,
        only,
        0 if snapshot is None else snapshot.left_out,
    )


def units_held(entry: Entry, sizes: Mapping[tuple[str, int], int]) -> int:
    """A lease in units, parts rounded up: memory is leased in whole MiB, rounded down."""
    return math.ceil(round(gpus_held(entry, sizes) * UNITS_OF_GPU, 6))


def _match(
    pods: Sequence[AskingPod], snapshot: Snapshot
) -> tuple[dict[AskingPod, AtThePool], tuple[Unaccounted, ...]]:
    """What each pod has at the pool, and who is left."""
    holders = _holders(snapshot)
    of_pods: dict[AskingPod, AtThePool] = {}
    for (_, place, _), has in holders.items():
        pod = _pod_at(pods, place)
        if pod is not None:
            of_pods[pod] = of_pods.get(pod, NOTHING).plus(has)
    left = []
    for (user, place, is_remote), has in sorted(holders.items(), key=lambda item: item[0][0]):
        pod = _pod_at(pods, place)
        held = of_pods[pod].held if pod is not None else 0
        why = _why_left(place, pod, held, is_remote)
        if why and has.leases:
            shown = f"{place.namespace}/{place.notebook}" if place.notebook else place.namespace
            left.append(Unaccounted(user, place.namespace, shown, has, why))
    return of_pods, tuple(left)


def _holders(snapshot: Snapshot) -> dict[tuple[str, HolderPlace, bool], AtThePool]:
    """What each has, by name, place and whether it came over the network."""
    found: dict[tuple[str, HolderPlace, bool], AtThePool] = {}
    sizes = device_sizes(snapshot.servers)
    have = [(entry, AtThePool(units_held(entry, sizes), 1)) for entry in snapshot.held]
    have += [(entry, AtThePool(waiting=1)) for entry in snapshot.waiting]
    for entry, has in have:
        key = entry.holder.user, holder_place(entry.holder), entry.holder.is_remote
        found[key] = found.get(key, NOTHING).plus(has)
    return found


def _pod_at(pods: Sequence[AskingPod], place: HolderPlace) -> AskingPod | None:
    """The pod of a place, one that has a node if there are several."""
    if not place.notebook:
        return None
    found = [pod for pod in pods if pod.namespace == place.namespace and _is_called(pod, place.notebook)]
    return min(found, key=lambda pod: not pod.node, default=None)


def _is_called(pod: AskingPod, name: str) -> bool:
    known = pod.notebook or pod.name
    return known.startswith(name[:-1]) if name.endswith(CUT) else known == name


def _why_left(place: HolderPlace, pod: AskingPod | None, held: int, is_remote: bool) -> str:
    if not is_remote:
        return "a user of the pool's own machine"
    if not place.namespace:
        return "a token of no namespace"
    if place.claimed:
        return f"says that it is {place.claimed}, with another namespace's token"
    if not place.notebook:
        return "says no notebook: not one of the cluster's pods, or none with an injected client"
    if pod is None:
        return "no pod with units is called so"
    if not pod.node:
        return "its pod has no node yet, so it is somebody else"
    if held > pod.units:
        return f"its pod counts {pod.units} units"
    return ""
