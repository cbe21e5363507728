"""Which gates are lifted, who is told what, and who is sent back: pure, over all pods and the pool's size.

The order is strict: the first that waits is lifted when its units are free, and nobody overtakes it, so
that a large notebook is not starved by small ones. Pods that can't be placed now whatever the others do are
passed over: those larger than the whole pool, those that somebody else's gate holds, and those whose lift the
API server refuses.

A gate is lifted in two steps. First a pod's units are *kept*: its condition says so, and from then on they
count. Then the gate is removed. A leader that is cut off may have sent either and never know; what it may
still send is always the removal for a pod whose condition its successor finds in its first list. So the
successor counts all that are kept, and lifts them only while all together fit. What does not fit is taken
back, which changes the pod's resourceVersion and so makes every removal that is still under way fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bitfusion_device_plugin.queue import words
from bitfusion_device_plugin.queue.lost_nodes import LostNode, lost_nodes
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod
from bitfusion_device_plugin.queue.words import Words


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the leader knows that the pods do not say.

    Attributes:
        reserved: Uids for which it has asked that units be kept, and the cache may not show it yet. They
            count.
        stuck: Uids that no node has been found for as long as is allowed, and the seconds.
        refused: Uids whose lift the API server has refused several times, and its words.
        not_ready: Nodes that are not ready, and since when, as their condition has it.
    """

    reserved: Collection[str] = ()
    stuck: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    not_ready: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done now, in this order, and the figures for the metrics.

    Attributes:
        take_back: Their units are kept, and do not fit.
        lift: Their units are kept: their gates are to be removed.
        keep: Their units are to be kept, and then their gates removed.
        send_back: To be deleted, so that they come back at the end of the queue.
        waits: What the pods are told that stay at their gate, by uid: in the order of the queue, then those
            that do not stand in it, then those whose units are taken back.
        holders_up: Who holds up others and is not deleted.
        lost: Nodes that are not ready, whose pods have units.
        on_lost: These pods.
        taken: Units that count, those of `lift` and `keep` among them.
        waiting: Pods that stay at their gate, whatever the reason.
    """

    take_back: tuple[QueuedPod, ...] = ()
    lift: tuple[QueuedPod, ...] = ()
    keep: tuple[QueuedPod, ...] = ()
    send_back: tuple[QueuedPod, ...] = ()
    waits: Mapping[str, Words] = field(default_factory=dict)
    holders_up: tuple[QueuedPod, ...] = ()
    lost: tuple[LostNode, ...] = ()
    on_lost: tuple[QueuedPod, ...] = ()
    taken: int = 0
    waiting: int = 0


def decide(pods: Iterable[QueuedPod], pool: int, known: Knowledge | None = None) -> Decision:
    """The next step for pods that ask for units, as the cache has them, and a pool of so many (0: away)."""
    known = known or Knowledge()
    placed: list[QueuedPod] = []
    kept: list[QueuedPod] = []
    gated: list[QueuedPod] = []
    for pod in pods:
        if pod.state in (PodState.LIFTED, PodState.BOUND):
            placed.append(pod)
        elif pod.state is PodState.KEPT or (pod.state is PodState.GATED and pod.uid in known.reserved):
            kept.append(pod)
        elif pod.state is PodState.GATED:
            gated.append(pod)
    kept.sort(key=_order)
    gated.sort(key=_order)
    taken = sum(pod.units for pod in placed) + sum(pod.units for pod in kept)
    take_back = _not_kept_any_more(kept, taken - pool, known.refused)
    unwanted = {pod.uid for pod in take_back}
    # What is taken back counts until the cache shows it, so nothing is lifted in the same step.
    lift = tuple(pod for pod in kept if pod.uid not in unwanted) if taken <= pool else ()
    queue, aside = _in_line(gated, pool, known.refused)
    keep: list[QueuedPod] = []
    for pod in queue:
        if taken + pod.units > pool:
            break
        keep.append(pod)
        taken += pod.units
    waiting = queue[len(keep) :]
    lost, on_lost = lost_nodes(placed, known.not_ready)
    lost_words = words.lost(lost)
    waits: dict[str, Words] = {}
    for position, pod in enumerate(waiting, 1):
        waits[pod.uid] = words.waits(
            pod.units, taken, pool, position, len(waiting), waiting[0].units, lost_words
        )
    waits.update(aside)
    for pod in take_back:
        why = known.refused.get(pod.uid)
        waits[pod.uid] = words.waits_again(pod.units, taken, pool) if why is None else words.refused(why)
    send_back, holders_up = _stuck(placed, waiting, pool - taken, known.stuck) if pool else ((), ())
    return Decision(
        take_back=take_back,
        lift=lift,
        keep=tuple(keep),
        send_back=send_back,
        waits=waits,
        holders_up=holders_up,
        lost=lost,
        on_lost=on_lost,
        taken=taken,
        waiting=len(gated) - len(keep),
    )


def _order(pod: QueuedPod) -> tuple[str, str, str]:
    return pod.order


def _not_kept_any_more(
    kept: Sequence[QueuedPod], excess: int, refused: Mapping[str, str]
) -> tuple[QueuedPod, ...]:
    """Those that will never be lifted, and from the end of the queue as many as are too many."""
    chosen = [pod for pod in kept if pod.uid in refused]
    excess -= sum(pod.units for pod in chosen)
    for pod in reversed(kept):
        if excess <= 0:
            break
        if pod.uid not in refused:
            chosen.append(pod)
            excess -= pod.units
    return tuple(chosen)


def _in_line(
    gated: Iterable[QueuedPod], pool: int, refused: Mapping[str, str]
) -> tuple[list[QueuedPod], dict[str, Words]]:
    """Those that wait for units, and what the others are told, by uid."""
    queue: list[QueuedPod] = []
    aside: dict[str, Words] = {}
    for pod in gated:
        if pod.other_gates:
            aside[pod.uid] = words.other_gates(pod.other_gates)
        elif pool and pod.units > pool:
            aside[pod.uid] = words.too_large(pod.units, pool)
        elif pod.uid in refused:
            aside[pod.uid] = words.refused(refused[pod.uid])
        else:
            queue.append(pod)
    return queue, aside


def _stuck(
    placed: Iterable[QueuedPod], waiting: Sequence[QueuedPod], free: int, seconds: Mapping[str, float]
) -> tuple[tuple[QueuedPod, ...], tuple[QueuedPod, ...]]:
    """Who is sent back, and who holds up others and is only told.

    As many are sent back as free what the first in the queue lacks, the longest stuck first; none if all of
    them are too few, since nobody would be served by it. What ends already is waited for.
    """
    if not waiting or not seconds:
        return (), ()
    placed = list(placed)
    overdue = [pod for pod in placed if pod.state is PodState.LIFTED and pod.no_node and pod.uid in seconds]
    short = waiting[0].units - free - sum(pod.units for pod in placed if pod.leaving)
    chosen: list[QueuedPod] = []
    for pod in sorted(overdue, key=lambda pod: (-seconds[pod.uid], pod.order)):
        if short <= 0:
            break
        if pod.remade:
            chosen.append(pod)
            short -= pod.units
    holders_up = tuple(pod for pod in overdue if not pod.remade)
    return (tuple(chosen) if short <= 0 else ()), holders_up
