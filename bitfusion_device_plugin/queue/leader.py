"""Carries out what is decided: keeps units, lifts gates, takes back, sends back. One thread, one term.

Nothing here waits for another pod: a request that fails is tried again later, and what it may have done
counts until the cache shows otherwise.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from bitfusion_cluster.api.errors import (
    ApiError,
    ApiFailure,
    Conflict,
    Forbidden,
    NoAnswer,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from bitfusion_cluster.api.events import NORMAL, WARNING
from bitfusion_cluster.api.paths import pod_path
from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.turns import by_turns
from bitfusion_device_plugin.queue import metrics as m
from bitfusion_device_plugin.queue import words
from bitfusion_device_plugin.queue.context import TIMEOUT, QueueContext
from bitfusion_device_plugin.queue.decisions import Decision, Knowledge, decide
from bitfusion_device_plugin.queue.pending_writes import PendingWrites
from bitfusion_device_plugin.queue.pod_patches import delete_options, keep_patch, lift_patch, wait_patch
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod, queued_pod
from bitfusion_device_plugin.queue.teller import Teller
from bitfusion_device_plugin.queue.unit_accounts import NodeUnits, pool_size
from bitfusion_device_plugin.queue.words import Words

MOST_WRITES = 16  # of a kind in one step, so that every few are decided anew
SOON_S = 0.5  # until the next look while something is under way
LATER_S = 10.0
LONGEST_PAUSE_S = 60.0  # that a server's Retry-After is believed
PAUSE_S = 1.0
FAILING = 3  # namespaces whose writes fail, and nobody's succeeds in between: the API server is in trouble
NO_RIGHT = r" cannot (patch|delete) resource "  # as the API server's authorizer words it

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caches:
    """What the watches fill."""

    pods: Cache[QueuedPod]
    nodes: Cache[NodeUnits]


class StuckPods:
    """How long the scheduler has found no node for lifted pods: measured here, since no pod says it.

    Of one term of leadership; used by one thread.

    Args:
        allowed_s: From when on a pod is called stuck. A new leader begins to measure anew.
    """

    def __init__(self, allowed_s: float) -> None:
        self._allowed = allowed_s
        self._since: dict[str, float] = {}

    def look(self, pods: Iterable[QueuedPod], now: float) -> dict[str, float]:
        """The uids of stuck pods, and the seconds since when they have no node."""
        since = self._since
        self._since = {
            pod.uid: since.get(pod.uid, now) for pod in pods if pod.state is PodState.LIFTED and pod.no_node
        }
        return {uid: now - first for uid, first in self._since.items() if now - first >= self._allowed}

    def any(self) -> bool:
        """Whether any pod is on its way to be called stuck, or is."""
        return bool(self._since)


class QueueLeader:
    """Made anew for each term, so that nothing is carried over but what stands in the pods.

    Args:
        gates: Whether the cluster has scheduling gates; without them pods are only counted.
    """

    def __init__(self, context: QueueContext, caches: Caches, teller: Teller, gates: bool = True) -> None:
        self._context = context
        self._caches = caches
        self._teller = teller
        self._gates = gates
        self._pending = PendingWrites()
        self._stuck = StuckPods(context.stuck_after_s)
        self._paused_until = 0.0
        self._failing: dict[str, float] = {}  # namespaces of the writes that failed last, each paused so long

    def step(self) -> float:
        """Look at everything once and do what is to be done; seconds to the next look at the latest.

        Raises NotLeading.
        """
        context, now = self._context, self._context.clock()
        if not context.leading():
            raise NotLeading
        # Those that ask for none are not looked at: see `idle_pods.py`.
        pods = [pod for pod in self._caches.pods.records() if pod.units]
        nodes = self._caches.nodes.records()
        offered, pool = pool_size(nodes), pool_size(nodes, context.units_from_zero)
        context.accounts.look(pods, now)
        shown = context.metrics
        shown.protected.set(self._gates)
        shown.last_look.set(context.now())
        if not self._gates:
            self._show(pods, pool, decide(pods, 0))
            return LATER_S
        self._pending.settle(pods)
        # While no node offers units none takes any of them: what that lasts is not held against them later.
        stuck = self._stuck.look(pods if offered else (), now)
        not_ready = {node.name: node.not_ready_since for node in nodes if node.not_ready_since is not None}
        known = Knowledge(self._pending.reserved(), stuck, self._pending.refused(now), not_ready)
        decision = decide(pods, pool, known)
        shown.stuck.set(len(known.stuck))
        self._show(pods, pool, decision)
        self._teller.waits(decision.waits)
        if now >= self._paused_until:
            self._perform(decision)
        under_way = self._pending.waits(now) or self._stuck.any() or decision.keep or decision.lift
        return SOON_S if under_way else LATER_S

    def _show(self, pods: list[QueuedPod], pool: int, decision: Decision) -> None:
        shown = self._context.metrics
        shown.pool.set(pool)
        shown.taken.set(decision.taken)
        shown.waiting.set(decision.waiting)
        shown.lost.set(sum(node.units for node in decision.lost))
        unqueued = (pod.state in (PodState.LIFTED, PodState.BOUND) and not pod.has_queued for pod in pods)
        shown.unqueued.set(sum(unqueued))

    def _perform(self, decision: Decision) -> None:
        said = decision.waits
        self._write_some(
            decision.take_back, lambda pod: self._try(m.TAKE_BACK, pod, self._take_back(said[pod.uid]))
        )
        self._write_some((*decision.lift, *decision.keep), self._lift_or_keep)
        self._write_some(decision.send_back, lambda pod: self._try(m.SEND_BACK, pod, self._send_back))
        for pod in decision.holders_up:
            self._teller.announce(pod, WARNING, words.holds_up(pod.units, pod.no_node))
        since = {node.name: node.since for node in decision.lost}
        for pod in decision.on_lost:
            self._teller.announce(pod, WARNING, words.on_lost_node(pod.units, pod.node, since[pod.node]))

    def _lift_or_keep(self, pod: QueuedPod) -> bool:
        if pod.state is PodState.KEPT:
            return self._try(m.LIFT, pod, self._lift)
        return self._try(m.KEEP, pod, self._keep)

    def _write_some(self, pods: Iterable[QueuedPod], write: Callable[[QueuedPod], bool]) -> None:
        """Write to as many of these as a step takes; the others are decided anew.

        Namespaces take turns: all of these are to be written to, so that none of them overtakes anybody. And
        what has failed is behind all that has not: each write to a pod that somebody else writes to all the
        time is a conflict.
        """
        first: list[QueuedPod] = []
        again: list[QueuedPod] = []
        for pod in pods:
            (again if self._pending.has_failed(pod) else first).append(pod)
        tried = (pod for pod in chain(_by_turns(first), _by_turns(again)) if write(pod))
        for _ in islice(tried, MOST_WRITES):
            pass

    def _try(self, step: str, pod: QueuedPod, act: Callable[[QueuedPod], bool]) -> bool:
        """One request, or two, and what its end means for the next; `act` is whether it was as expected.

        Whether one was made: not if it is too soon for this pod, or for all. Raises NotLeading.
        """
        context, now = self._context, self._context.clock()
        paused_until = max(self._paused_until, self._failing.get(pod.namespace, 0.0))
        if now < paused_until or not self._pending.may_try(pod, now):
            return False
        if not context.leading():
            raise NotLeading
        self._pending.begin(pod, reserves=step == m.KEEP)
        result = m.DONE
        error: ApiFailure | None = None
        try:
            as_expected = act(pod)
        except (Conflict, NotFound) as failure:
            result, error = m.CONFLICT, failure
            self._pending.conflicts(pod, context.clock())
        except ApiFailure as failure:
            result, error = m.ERROR, failure
            if _is_about_the_pod(failure):
                self._pending.refuse(pod, _words_of(failure), context.clock())
            elif isinstance(failure, (NoAnswer, ServerError)):
                self._pending.lost(pod, _words_of(failure), context.clock())
                self._pause_one(pod.namespace, failure)
            else:
                self._pause(failure)
        except NotLeading:
            context.metrics.writes.labels(step, m.ERROR).inc()
            raise
        else:
            self._failing.clear()
            if as_expected:
                self._pending.done(pod, context.clock(), lifted=step in (m.KEEP, m.LIFT))
            else:
                result = m.CONFLICT
                self._pending.conflicts(pod, context.clock())
        context.metrics.writes.labels(step, result).inc()
        if error is not None:
            level = logging.DEBUG if result == m.CONFLICT else logging.WARNING
            log.log(level, "tried again later", extra={**_fields(pod), "step": step, "error": str(error)})
        return True

    def _pause(self, failure: ApiFailure) -> None:
        """Send nothing for a while: the requests for the other pods would end as this one has."""
        seconds = getattr(failure, "retry_after", None) or PAUSE_S
        self._paused_until = self._context.clock() + min(seconds, LONGEST_PAUSE_S)

    def _pause_one(self, namespace: str, failure: ApiFailure) -> None:
        """Send nothing to this namespace for a while, and to nobody if others' pods have failed like its own.

        One that is as large as a pod may be has no room for a condition, and the API server says 500.
        """
        self._failing[namespace] = self._context.clock() + PAUSE_S
        if len(self._failing) >= FAILING or getattr(failure, "retry_after", None):
            self._pause(failure)

    def _keep(self, pod: QueuedPod) -> bool:
        """Keep the pod's units, and lift its gate at once."""
        context = self._context
        operations = keep_patch(pod, words.lifted(pod.units), context.now())
        kept = queued_pod(context.api.patch(_status_path(pod), operations, timeout=TIMEOUT))
        if kept is None or kept.uid != pod.uid or kept.state is not PodState.KEPT:
            return False  # somebody else was at it: the cache will show
        self._pending.landed(pod, kept)
        # Asked anew, after the answer: this is what a successor relies on (see `decisions.py`).
        if not context.leading():
            raise NotLeading
        return self._lift(kept)

    def _lift(self, pod: QueuedPod) -> bool:
        left = queued_pod(self._context.api.patch(pod_path(*pod.key), lift_patch(pod), timeout=TIMEOUT))
        if left is None or left.uid != pod.uid or left.gate_index >= 0:
            return False
        log.info("gate lifted", extra={**_fields(pod), "units": pod.units})
        self._teller.announce(pod, NORMAL, words.lifted(pod.units))
        return True

    def _take_back(self, said: Words) -> Callable[[QueuedPod], bool]:
        def act(pod: QueuedPod) -> bool:
            context = self._context
            context.api.patch(_status_path(pod), wait_patch(pod, said, context.now()), timeout=TIMEOUT)
            log.info("units taken back", extra={**_fields(pod), "units": pod.units})
            return True

        return act

    def _send_back(self, pod: QueuedPod) -> bool:
        self._context.api.delete(pod_path(*pod.key), delete_options(pod), timeout=TIMEOUT)
        log.info("sent to the end of the queue", extra={**_fields(pod), "scheduler": pod.no_node})
        self._teller.announce(pod, WARNING, words.sent_back(pod.units, pod.no_node))
        return True


def _by_turns(pods: Iterable[QueuedPod]) -> Iterator[QueuedPod]:
    return by_turns(pods, lambda pod: pod.namespace)


def _is_about_the_pod(failure: ApiFailure) -> bool:
    """Whether a webhook, a policy or the API itself does not want this pod written to.

    No answer, 401, 429 and 5xx say nothing about it; nor does a role that is missing, or that a server which
    has just started has not read yet.
    """
    if not isinstance(failure, ApiError) or isinstance(failure, (ServerError, TooManyRequests, Unauthorized)):
        return False
    no_right = isinstance(failure, Forbidden) and re.search(NO_RIGHT, failure.message)
    return not no_right


def _words_of(failure: ApiFailure) -> str:
    return (failure.message if isinstance(failure, ApiError) else "") or str(failure)


def _status_path(pod: QueuedPod) -> str:
    return f"{pod_path(*pod.key)}/status"


def _fields(pod: QueuedPod) -> dict[str, str]:
    return {"namespace": pod.namespace, "pod": pod.name}
