"""A work queue: keys to look at, each once at a time, with retries and delays, and turns by namespace."""

from __future__ import annotations

import heapq
import logging
import random
import threading
import time
from collections.abc import Callable

from bitfusion_cluster.watching.backoff import doubled_delay
from bitfusion_cluster.watching.cache import Key
from bitfusion_cluster.watching.turns import Turns

log = logging.getLogger(__name__)


class WorkQueue:
    """A de-duplicating queue for several workers, with exponential backoff for each key.

    A key is handed to one worker at a time; added again meanwhile, it comes once more afterwards. Of several
    times given for one key the earliest counts. Of the keys that are ready namespaces take turns. All methods
    may be called from any thread.
    """

    def __init__(
        self,
        first_delay: float = 0.5,
        longest_delay: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = first_delay
        self._longest = longest_delay
        self._clock = clock
        self._chance = chance
        self._change = threading.Condition()
        self._ready: Turns[Key] = Turns()
        self._waiting: set[Key] = set()  # the keys in `_ready`
        self._held: set[Key] = set()  # those that a worker has
        self._again: set[Key] = set()  # held, and to be looked at again
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []  # may name times that `_due` has forgotten
        self._failures: dict[Key, int] = {}
        self._closed = False

    def add(self, key: Key, after: float = 0.0) -> None:
        """Look at the key, now or `after` seconds from now."""
        with self._change:
            if after <= 0:
                self._make_ready(key)
                return
            due = self._clock() + after
            if key in self._waiting or due >= self._due.get(key, float("inf")):
                return
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._change.notify()

    def retry(self, key: Key, at_least: float = 0.0) -> float:
        """The key failed: look at it again later, twice as late each time. Returns the seconds."""
        with self._change:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            delay = doubled_delay(failures, self._first, self._longest) * (1 - self._chance() / 2)
            delay = max(delay, at_least)
            self.add(key, delay)
            return delay

    def forget(self, key: Key) -> None:
        """The key succeeded: its next failure counts as the first."""
        with self._change:
            self._failures.pop(key, None)

    def get(self, seconds: float | None = None) -> Key | None:
        """The next key, waiting up to `seconds`; None when there is none, or the queue is closed."""
        deadline = None if seconds is None else self._clock() + seconds
        with self._change:
            while not self._closed:
                now = self._clock()
                self._wake(now)
                if self._ready:
                    key = self._ready.popleft()
                    self._waiting.discard(key)
                    self._held.add(key)
                    return key
                ends = [
                    end for end in (deadline, self._heap[0][0] if self._heap else None) if end is not None
                ]
                if deadline is not None and now >= deadline:
                    return None
                self._change.wait(max(0.0, min(ends) - now) if ends else None)
            return None

    def done(self, key: Key) -> None:
        """The worker that got the key has finished with it, whatever came of it."""
        with self._change:
            self._held.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._make_ready(key)

    def work_off(self, handle: Callable[[Key], None]) -> None:
        """Hand every key to `handle`, one after another, until the queue is closed. For a worker thread.

        What `handle` raises is a bug, which the log has: it must not hold up the other keys.
        """
        while (key := self.get()) is not None:
            try:
                handle(key)
            except Exception:
                log.exception("a key was left undone", extra={"namespace": key[0], "key": key[1]})
            finally:
                self.done(key)

    def close(self) -> None:
        """Hand out nothing more; workers that wait return."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def depth(self) -> int:
        """Keys that wait for a worker, those that wait for their time included."""
        with self._change:
            return len(self._waiting) + len(self._due) + len(self._again)

    def idle(self) -> bool:
        """Whether nothing waits and no worker is busy."""
        with self._change:
            return not (self._waiting or self._due or self._again or self._held)

    def _make_ready(self, key: Key) -> None:
        self._due.pop(key, None)
        if key in self._held:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key[0], key)
            self._change.notify()

    def _wake(self, now: float) -> None:
        while self._heap and (self._heap[0][0] <= now or self._heap[0][1] not in self._due):
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self._make_ready(key)
