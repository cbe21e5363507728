"""A rate limiter for the requests of a program: a token bucket that a 429 pauses for every worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bitfusion_cluster.api.errors import ApiFailure, TooManyRequests

LONGEST_PAUSE_S = 60.0  # that a server's Retry-After is believed


class RateLimiter:
    """At most `per_second` requests a second on average, `burst` at once, over all threads that ask.

    Args:
        per_second: Tokens that come back each second.
        burst: Tokens there can be at most, and at the start.
        clock: Seconds; tests pass their own.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._left = burst
        self._refilled_at = clock()

    def wait(self, stopping: threading.Event) -> bool:
        """Block until the next request may be made; False if `stopping` was set first."""
        return not stopping.wait(self.take())

    def take(self) -> float:
        """Take one token; the seconds until it is there."""
        with self._lock:
            self._refill()
            self._left -= 1
            return max(0.0, -self._left / self._per_second)

    def pause(self, seconds: float) -> None:
        """Let no further request through before `seconds` have passed. Called after a 429."""
        with self._lock:
            self._refill()
            self._left = min(self._left, -seconds * self._per_second)

    def heed(self, error: ApiFailure) -> None:
        """Pause for as long as a 429 says, or a second; nothing for other failures."""
        if isinstance(error, TooManyRequests):
            self.pause(min(error.retry_after or 1.0, LONGEST_PAUSE_S))

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._refilled_at) * self._per_second)
        self._refilled_at = now
