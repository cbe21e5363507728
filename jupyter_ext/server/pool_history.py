"""The last hour of the pool, for a small chart. In memory only."""

from __future__ import annotations

from collections import deque
from typing import Any

Json = dict[str, Any]

MOST_POINTS = 240
LEAST_APART = 15.0
"""Seconds between two points of which nothing differs."""


class PoolHistory:
    """Points in time with what was held, and how many waited; the oldest are forgotten."""

    def __init__(self) -> None:
        self._points: deque[Json] = deque(maxlen=MOST_POINTS)

    def add(self, at: float, figures: Json) -> None:
        """Keep a point; `at` in seconds since the epoch, `figures` as `pool_report.figures` has them."""
        if self._points:
            last = self._points[-1]
            same = all(last[name] == value for name, value in figures.items())
            if same and 0 <= at - last["at"] < LEAST_APART:
                return
        self._points.append({"at": round(at, 3), **figures})

    def to_json(self) -> list[Json]:
        """All points, oldest first."""
        return list(self._points)
