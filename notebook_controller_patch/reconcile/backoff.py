"""How long to wait before trying again, and not to write too often."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

Clock = Callable[[], float]


class Backoff:
    """1, 2, 4 … 30 seconds, each shortened by up to its half at random: replicas do not march in step.

    A server's Retry-After is a lower bound; a little is added to it for the same reason.
    """

    def __init__(self, first: float = 1.0, longest: float = 30.0, chance: Callable[[], float] | None = None):
        self.failures = 0
        self._first = first
        self._longest = longest
        self._chance = chance or random.random

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure."""
        whole = min(self._longest, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        delay = whole * (1 - self._chance() / 2)
        if retry_after is not None:
            delay = max(delay, retry_after + self._first * self._chance())
        return delay

    def reset(self) -> None:
        self.failures = 0


class Pace:
    """At most so many requests a second, all workers together; `pause` holds all of them back (429).

    `wait` blocks the caller until it is its turn and returns False when `stopping` came first.
    """

    def __init__(self, per_second: float, burst: float, clock: Clock = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._left = burst
        self._seen = clock()

    def wait(self, stopping: threading.Event) -> bool:
        return not stopping.wait(self.take())

    def take(self) -> float:
        """Take one turn; the seconds until it comes."""
        with self._lock:
            self._refill()
            self._left -= 1
            return max(0.0, -self._left / self._per_second)

    def pause(self, seconds: float) -> None:
        """No turn before `seconds` have passed."""
        with self._lock:
            self._refill()
            self._left = min(self._left, -seconds * self._per_second)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._seen) * self._per_second)
        self._seen = now


class Restraint:
    """Keeps us out of a quarrel: somebody undoes what we write, we write it again, and so for ever.

    The first `free` writes to one key are not held back; after them each must wait twice as long as the one
    before, up to `longest` seconds. After `calm` seconds without a write the key is as new.
    """

    def __init__(
        self,
        free: int = 20,
        first: float = 1.0,
        longest: float = 300.0,
        calm: float = 600.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._free = free
        self._first = first
        self._longest = longest
        self._calm = calm
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[tuple[str, str], tuple[int, float]] = {}

    def delay(self, key: tuple[str, str]) -> float:
        """Seconds until the key may be written again; 0 for now."""
        with self._lock:
            count, last = self._written.get(key, (0, 0.0))
            passed = self._clock() - last
            if passed >= self._calm:
                self._written.pop(key, None)
                return 0.0
            if count < self._free:
                return 0.0
            must = min(self._longest, self._first * 2.0 ** min(count - self._free, 30))
            return max(0.0, must - passed)

    def note(self, key: tuple[str, str]) -> None:
        """The key was written."""
        with self._lock:
            count, last = self._written.get(key, (0, 0.0))
            now = self._clock()
            if now - last >= self._calm:
                count = 0
            self._written[key] = (count + 1, now)

    def forget(self, key: tuple[str, str]) -> None:
        """The object is gone."""
        with self._lock:
            self._written.pop(key, None)
