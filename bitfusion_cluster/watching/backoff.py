"""Exponential backoff: how long to wait before what has failed is tried again, with jitter where many do."""

from __future__ import annotations

import random
from collections.abc import Callable


def doubled_delay(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after one failure more than `failures` in a row: `first`, twice that … `longest`."""
    return min(longest, first * 2.0 ** min(failures, 30))


class Backoff:
    """1, 2, 4 … 30 seconds, each shortened by up to a half at random so that replicas do not retry in step.

    Args:
        first: Seconds after the first failure.
        longest: Seconds that no delay exceeds, unless the server asks for more.
        chance: A random number from 0 to 1; tests pass their own.
    """

    def __init__(
        self, first: float = 1.0, longest: float = 30.0, chance: Callable[[], float] = random.random
    ) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._chance = chance

    def next(self, retry_after: float | None = None) -> float:
        """Count a failure; the seconds to wait after it.

        `retry_after`, what the server asked for, is a lower bound: up to `first` seconds are added at random.
        """
        whole = doubled_delay(self.failures, self._first, self._longest)
        self.failures += 1
        delay = whole * (1 - self._chance() / 2)
        if retry_after is not None:
            delay = max(delay, retry_after + self._first * self._chance())
        return delay

    def reset(self) -> None:
        """Start anew after a success."""
        self.failures = 0
