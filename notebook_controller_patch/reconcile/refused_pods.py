"""Notebooks whose pods could not be made because the pod injector did not answer, and when to try again.

A StatefulSet whose pod was refused tries again by itself, but after some minutes of an outage a minute or
more passes between two tries. A touch of one of its annotations makes it try at once. Of many notebooks one
is tried every few seconds, by turns of their namespaces: one may have many that never get a pod, whatever
they say why. Once a pod has been made, all the others are tried.
Only Events tell why a pod was not made: a StatefulSet has no condition for it. A leader reads them once when
its term begins, for what happened while nobody was there.

Called by the reconciler's workers, which share one object; it locks for itself and makes no request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from math import inf
from typing import Any

from bitfusion_client.kubernetes.names import PODS_WEBHOOK
from bitfusion_client.kubernetes.raw_objects import mapping, text
from bitfusion_cluster.api.events import event_time
from bitfusion_cluster.watching.cache import Key

FIRST_LOOK_S = 1.0  # after a StatefulSet without a pod was seen: it is usually being made
TRY_S = 4.0  # between two tries, each of one notebook
LONGEST_LOOK_S = 60.0  # between two looks at a notebook that nobody tries
RECENT_S = 600.0  # after which a new leader does not tell any more what was before it

# As kube-apiserver has it when a webhook that fails closed cannot be asked; seen on 1.34.
NOT_ASKED = f'failed calling webhook "{PODS_WEBHOOK}"'


def injector_was_away(events: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the newest of a StatefulSet's Events about refused pods says that the injector was away."""
    newest = max(events, key=event_time, default=None)
    return newest is not None and NOT_ASKED in text(newest.get("message"))


def absences(
    refusals: Sequence[Mapping[str, Any]],
    returns: Sequence[Mapping[str, Any]],
    now: datetime,
    owner_of: Callable[[Key], Key],
) -> dict[Key, datetime]:
    """The notebooks whose pods were refused of late for the injector's absence, and when last.

    For a leader that has just begun: others may have led before it, or nobody.

    Args:
        refusals: Events about pods that StatefulSets could not make, of any namespace.
        returns: Our Events that tell a notebook of the injector's return; what was told is left out.
        now: In UTC.
        owner_of: The Notebook of a StatefulSet, by their keys.
    """
    newest: dict[Key, Mapping[str, Any]] = {}
    for event in sorted(refusals, key=event_time):
        newest[owner_of(_key(event))] = event
    told = {_key(event): event_time(event) for event in sorted(returns, key=event_time)}
    found = {}
    for key, event in newest.items():
        when = _time(event)
        if (
            NOT_ASKED not in text(event.get("message"))
            or when is None
            or told.get(key, "") >= event_time(event)
        ):
            continue
        if (now - when).total_seconds() <= RECENT_S:
            found[key] = when
    return found


def _key(event: Mapping[str, Any]) -> Key:
    about = mapping(event.get("involvedObject"))
    return text(about.get("namespace")), text(about.get("name"))


def _time(event: Mapping[str, Any]) -> datetime | None:
    try:  # whole seconds; eventTime has fractions
        return datetime.strptime(event_time(event)[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


class RefusedPods:
    """What is known of notebooks that should have a pod and have none.

    Args:
        look_later: Queues a notebook, so many seconds from now.
        clock: Seconds, monotonic; tests pass their own.
        now: Seconds since the epoch, for people.
    """

    def __init__(
        self,
        look_later: Callable[[Key, float], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._look_later = look_later
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._since: dict[Key, float] = {}  # without a pod, and not known to be refused
        # for the injector's absence, and when that was noticed
        self._refused: dict[Key, datetime] = {}
        self._next_try = -inf
        self._last_try: dict[Key, float] = {}  # of a notebook, and of a namespace as ``(namespace, "")``
        self._tried: set[Key] = set()  # since the injector seems to be back
        self._back = False

    def learn(self, known: Mapping[Key, datetime]) -> None:
        """Take over what was known before this term, as `absences` has it."""
        with self._lock:
            for key, when in known.items():
                self._refused.setdefault(key, when)

    def to_be_asked(self, key: Key) -> bool:
        """Whether it is time to look why this notebook has no pod. Otherwise it is queued for later."""
        with self._lock:
            if key in self._refused:
                return True
            now = self._clock()
            waited = now - self._since.setdefault(key, now)
            if waited < FIRST_LOOK_S:
                self._look_later(key, FIRST_LOOK_S - waited)
                return False
            return True

    def refused(self, key: Key) -> bool:
        """It was refused for the injector's absence: whether to try it now. It is queued for later."""
        with self._lock:
            self._since.pop(key, None)
            self._refused.setdefault(key, datetime.fromtimestamp(int(self._now()), timezone.utc))
            if self._back and key in self._tried:
                self._back = False  # away again
            if self._back:
                self._tried.add(key)
                self._look_later(key, TRY_S)
                return True
            return self._is_tried_now(key)

    def _is_tried_now(self, key: Key) -> bool:
        """Whether it is its turn, and time for one; or another's that was not looked at."""
        now = self._clock()
        is_tried = self._next_try <= now - (0.0 if key == self._whose_turn() else TRY_S)
        if is_tried:
            self._next_try = now + TRY_S
            self._last_try[key] = self._last_try[key[0], ""] = now
        self._look_later(key, LONGEST_LOOK_S)
        self._look_at_next()
        return is_tried

    def _look_at_next(self) -> None:
        self._look_later(self._whose_turn(), max(0.0, self._next_try - self._clock()))

    def _whose_turn(self) -> Key:
        """Of the namespace of which one was tried longest ago, the one that was; `_refused` is not empty."""
        last = self._last_try
        return min(self._refused, key=lambda key: (last.get((key[0], ""), -inf), last.get(key, -inf)))

    def for_another_reason(self, key: Key) -> None:
        """It has no pod, and not for the injector's absence. It is queued for later."""
        with self._lock:
            waited = self._clock() - self._since.setdefault(key, self._clock())
            self._look_later(key, min(max(waited, FIRST_LOOK_S), LONGEST_LOOK_S))
            self._settled(key)

    def refused_since(self, key: Key) -> datetime | None:
        """When the absence for which it is refused was noticed first; None if it is not."""
        with self._lock:
            return self._refused.get(key)

    def has_pod(self, key: Key) -> None:
        """It has one, or needs none."""
        with self._lock:
            self._since.pop(key, None)
            self._settled(key)

    def forget(self, key: Key) -> None:
        """It is gone, or stopped: that says nothing about the injector, and another one is tried."""
        with self._lock:
            self._since.pop(key, None)
            if self._drop(key) and self._refused:
                self._look_at_next()

    def _settled(self, key: Key) -> None:
        """The injector has answered for this one: all the others are tried at once."""
        if not self._drop(key):
            return
        if not self._back:
            self._back, self._tried = True, set()
        for other in self._refused:
            if other not in self._tried:
                self._look_later(other, 0.0)

    def _drop(self, key: Key) -> bool:
        if key not in self._refused:
            return False
        del self._refused[key]
        self._tried.discard(key)
        self._last_try.pop(key, None)
        if not self._refused:
            self._last_try.clear()
        return True
