"""How often a kernel has died of late: one that dies again and again does not keep others waiting. Pure."""

from __future__ import annotations

MOST = 3
WITHIN = 60.0
"""Seconds."""


class Deaths:
    """Those of one supervisor's kernels and proxies."""

    def __init__(self) -> None:
        self._at: list[float] = []

    def note(self, now: float) -> bool:
        """One more, at `time.monotonic()`; whether they are too many to keep the lease for."""
        self._at = [at for at in self._at if now - at < WITHIN] + [now]
        return len(self._at) >= MOST

    def forget(self) -> None:
        """A cell has finished: the kernel can work."""
        self._at.clear()
