"""Exponential backoff with jitter: how long to wait before a failed request is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable


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
        whole = min(self._longest, self._first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        delay = whole * (1 - self._chance() / 2)
        if retry_after is not None:
            delay = max(delay, retry_after + self._first * self._chance())
        return delay

    def reset(self) -> None:
        """Start anew after a success."""
        self.failures = 0
