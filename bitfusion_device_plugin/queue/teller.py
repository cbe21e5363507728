"""Tells people why their pods wait: the pods' condition, and Events on the notebooks. A thread of its own.

So no lift waits for a thousand sentences. What changes a reason is written first, in the order of the queue;
what changes numbers only (everybody moves up by one) is written the more seldom the further back a pod is.
Namespaces take turns, and so do conditions and announcements: nobody's thousands silence the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from bitfusion_cluster.api.errors import (
    ApiError,
    ApiFailure,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from bitfusion_cluster.api.events import WARNING, event_count, event_renewal
from bitfusion_cluster.api.paths import events_path, notebook_path, pod_path
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from bitfusion_cluster.watching.turns import Turns, by_turns
from bitfusion_device_plugin.queue import metrics as m
from bitfusion_device_plugin.queue.context import TIMEOUT, QueueContext
from bitfusion_device_plugin.queue.pod_patches import wait_patch
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod
from bitfusion_device_plugin.queue.words import Words, event_about, event_body

WRITES_PER_SECOND = 10.0  # pods told something; each takes four requests at most
FIRST_REFRESH_S = 5.0  # between two messages of the first in the queue with one reason …
REFRESH_PER_PLACE_S = 0.5  # … and so much longer for each place behind it
EVENT_AGAIN_S = 1800.0  # the API server forgets Events after an hour
FAILED_S = 5.0  # until what failed is tried again
LOOK_S = 1.0
MOST_ANNOUNCED = 100  # of one namespace
MOST_TRIES = 3  # to send an Event about a pod that does not wait

# Not found: an Event that was there a moment ago. Or a namespace, whose pods are gone in a moment.
_PASSING = (NotFound, ServerError, TooManyRequests, Unauthorized)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Said:
    """What was last said to one pod by this leader."""

    reason: str = ""  # of its Event
    event_at: float = 0.0
    version: str = ""  # of the pod, as it was when its condition was written
    not_before: float = 0.0  # of the next condition with the same reason


@dataclass(frozen=True, slots=True)
class _Announced:
    """An Event that waits to be sent."""

    pod: QueuedPod
    kind: str
    words: Words
    tries: int = 1


class Teller:
    """Of one term of leadership. `waits` and `announce` are called by the leader's thread and never wait."""

    def __init__(self, context: QueueContext, pods: Cache[QueuedPod]) -> None:
        self._context = context
        self._pods = pods
        self._limiter = RateLimiter(WRITES_PER_SECOND, WRITES_PER_SECOND, context.clock)
        self._change = threading.Condition()
        self._stopping = threading.Event()
        self._wanted: Mapping[str, Words] = {}
        self._announced: Turns[_Announced] = Turns(MOST_ANNOUNCED)
        self._heard: dict[str, tuple[str, float]] = {}  # by uid, the last reason that was announced, and when
        self._said: dict[str, _Said] = {}
        self._abouts: dict[str, Mapping[str, str]] = {}

    def waits(self, wanted: Mapping[str, Words]) -> None:
        """What pods are to be told that stay at their gate, by uid, in the order of the queue."""
        with self._change:
            if wanted != self._wanted:
                self._wanted = wanted
                self._change.notify()

    def announce(self, pod: QueuedPod, kind: str, words: Words) -> None:
        """Send one Event about a pod, unless the last one was of the same reason and not long ago."""
        now = self._context.clock()
        with self._change:
            reason, at = self._heard.get(pod.uid, ("", now))
            if reason == words.reason and now - at < EVENT_AGAIN_S:
                return
            self._heard[pod.uid] = (words.reason, now)
            self._announced.append(pod.namespace, _Announced(pod, kind, words))
            self._change.notify()

    def stop(self) -> None:
        """Begin nothing more; does not wait."""
        self._stopping.set()
        with self._change:
            self._change.notify()

    def work(self) -> None:
        """Until `stop`. The target of a thread."""
        while not self._stopping.is_set():
            try:
                if not self.say_next():
                    with self._change:
                        if not self._announced and not self._stopping.is_set():
                            self._change.wait(LOOK_S)
            except Exception:  # one pod's bug must not silence the others
                log.exception("not told")
                self._stopping.wait(LOOK_S)

    def say_next(self) -> bool:
        """Write what is most urgent, one announcement and then conditions; False if there is nothing now."""
        with self._change:
            announced = self._announced.popleft() if self._announced else None
        if (
            announced is not None
            and self._may_write()
            and not self._send(announced.pod, announced.kind, announced.words)
        ):
            self._try_again(announced)
        plan = self._plan()
        for pod, place in plan:
            with self._change:
                words = self._wanted.get(pod.uid)
                announcing = bool(self._announced)
            if words is not None and self._may_write():
                self._tell(pod, words, place)
            if announcing:
                break
        return announced is not None or bool(plan)

    def _try_again(self, announced: _Announced) -> None:
        if announced.tries < MOST_TRIES:
            with self._change:
                self._announced.append(announced.pod.namespace, replace(announced, tries=announced.tries + 1))

    def _plan(self) -> list[tuple[QueuedPod, int]]:
        """Whom to tell now, the most urgent first, and their places: what can be written in a second."""
        now = self._context.clock()
        pods = self._pods.records()
        with self._change:
            wanted = self._wanted
            there = {pod.uid for pod in pods}
            self._heard = {uid: heard for uid, heard in self._heard.items() if uid in there}
        by_uid = {pod.uid: pod for pod in pods if pod.state is PodState.GATED}
        for known in (self._said, self._abouts):
            for uid in [uid for uid in known if uid not in by_uid]:
                del known[uid]
        first: list[tuple[QueuedPod, int]] = []
        later: list[tuple[QueuedPod, int]] = []
        for place, (uid, words) in enumerate(wanted.items()):
            pod = by_uid.get(uid)
            if pod is None:
                continue
            said = self._said.setdefault(uid, _Said())
            if said.version == pod.resource_version and now < said.not_before:
                continue  # the cache does not show yet what was written, or it failed
            told = pod.told
            if told is None or told.status != "False" or told.reason != words.reason:
                first.append((pod, place))
            elif now >= said.not_before and (
                told.message != words.message or (said.reason and now - said.event_at >= EVENT_AGAIN_S)
            ):
                later.append((pod, place))
        # by namespace: who has something new comes first in each round
        turns = by_turns(first + later, lambda planned: planned[0].namespace)
        return list(islice(turns, int(WRITES_PER_SECOND)))

    def _tell(self, pod: QueuedPod, words: Words, place: int) -> None:
        """The Event where the reason is new, then the condition: who finds the condition need not ask."""
        context, said = self._context, self._said[pod.uid]
        now = context.clock()
        told = pod.told
        is_new = told is None or told.status != "False" or told.reason != words.reason
        if not said.reason and not is_new:
            said.reason, said.event_at = words.reason, now  # told by the leader before
        if said.reason != words.reason or now - said.event_at >= EVENT_AGAIN_S:
            if not self._send(pod, WARNING, words):
                said.version, said.not_before = pod.resource_version, now + FAILED_S
                return
            said.reason, said.event_at = words.reason, now
        said.version = pod.resource_version
        if told is not None and not is_new and told.message == words.message:
            return
        result = m.DONE
        try:
            path = f"{pod_path(*pod.key)}/status"
            context.api.patch(path, wait_patch(pod, words, context.now()), timeout=TIMEOUT)
            said.not_before = now + FIRST_REFRESH_S + REFRESH_PER_PLACE_S * place
        except Conflict:
            result, said.not_before = m.CONFLICT, now + FAILED_S
        except ApiFailure as error:
            result, said.not_before = m.ERROR, now + FAILED_S
            self._failed(pod, error)
        context.metrics.writes.labels(m.TELL, result).inc()

    def _send(self, pod: QueuedPod, kind: str, words: Words) -> bool:
        """Create an Event, or renew it; False if it should be tried again."""
        context, result = self._context, m.DONE
        try:
            body = event_body(self._about(pod), kind, words, context.replica)
            path = events_path(pod.namespace)
            try:
                context.api.create(path, body, timeout=TIMEOUT)
            except Conflict:
                # said before, perhaps of the notebook's pod before this one
                own = f"{path}/{body['metadata']['name']}"
                renewed = context.api.merge(own, event_renewal(body), timeout=TIMEOUT)
                context.api.merge(own, event_count(renewed), timeout=TIMEOUT)
        except ApiFailure as error:
            result = m.ERROR
            self._failed(pod, error)
            if not isinstance(error, ApiError) or isinstance(error, _PASSING):
                return False
        finally:
            context.metrics.writes.labels(m.EVENT, result).inc()
        return True

    def _about(self, pod: QueuedPod) -> Mapping[str, str]:
        """Whose Event it is: the Notebook's where there is one, else the pod's. Raises ApiFailure."""
        about = self._abouts.get(pod.uid)
        if about is not None:
            return about
        notebook = None
        if pod.notebook:
            try:
                notebook = self._context.api.get(notebook_path(pod.namespace, pod.notebook), timeout=TIMEOUT)
            except (NotFound, Forbidden):
                return event_about(pod, None)  # none of that name, no Kubeflow, or no right yet
        about = self._abouts[pod.uid] = event_about(pod, notebook)
        return about

    def _may_write(self) -> bool:
        return self._limiter.wait(self._stopping) and self._context.leading()

    def _failed(self, pod: QueuedPod, error: ApiFailure) -> None:
        self._limiter.heed(error)
        details = {"namespace": pod.namespace, "pod": pod.name, "error": str(error)}
        log.warning("not told", extra=details)
