"""Throttles writes to a notebook when another program keeps undoing what the reconciler writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bitfusion_cluster.watching.backoff import doubled_delay
from bitfusion_cluster.watching.cache import Key


class WriteThrottler:
    """Delays writes to an object that has been written too often.

    Args:
        free: Writes to one key that are not delayed. Each one after them waits twice as long as the one
            before.
        first: Seconds of the first delay.
        longest: Seconds of the longest delay.
        calm: After so many seconds without a write the count of a key starts anew.
        clock: Seconds; tests pass their own.
    """

    def __init__(
        self,
        free: int = 20,
        first: float = 1.0,
        longest: float = 300.0,
        calm: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = free
        self._first = first
        self._longest = longest
        self._calm = calm
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[Key, tuple[int, float]] = {}  # how often, and when last

    def delay(self, key: Key) -> float:
        """Seconds until the key may be written again; 0 for now."""
        with self._lock:
            count, last = self._written.get(key, (0, 0.0))
            passed = self._clock() - last
            if passed >= self._calm:
                self._written.pop(key, None)
                return 0.0
            if count < self._free:
                return 0.0
            required = doubled_delay(count - self._free, self._first, self._longest)
            return max(0.0, required - passed)

    def note(self, key: Key) -> None:
        """Count a write to the key. Called after each one that succeeded."""
        with self._lock:
            count, last = self._written.get(key, (0, 0.0))
            now = self._clock()
            if now - last >= self._calm:
                count = 0
            self._written[key] = (count + 1, now)

    def forget(self, key: Key) -> None:
        """Drop what is known of the key. Called when the object is gone."""
        with self._lock:
            self._written.pop(key, None)
