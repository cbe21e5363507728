"""Runs `bitfusion-pool` with every step of its event loop timed: who kept others waiting, it or the machine?

The first argument is the file into which it writes the longest steps when it ends, as JSON. A step's own time
is what it took but for waiting for a core: processor time, and waiting for disks and pipes.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import sys
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

MOST = 10


class Step(NamedTuple):
    """Of the event loop; in seconds."""

    own_s: float
    took_s: float
    what: str


class _Longest:
    """Keeps the steps that are longest by their own time."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, int, Step]] = []
        self._numbers = count()
        self._run = asyncio.Handle._run
        try:
            self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except FileNotFoundError:  # a kernel without; then all of a step counts as its own
            self._schedule = -1

    def run(self, handle: asyncio.Handle) -> None:
        began, waited = time.monotonic(), self._waited_for_a_core_s()
        self._run(handle)
        took = time.monotonic() - began
        if len(self.steps) == MOST and took <= self.steps[0][0]:
            return
        own = took - (self._waited_for_a_core_s() - waited)
        callback: object = handle._callback  # type: ignore[attr-defined]  # of CPython
        step = Step(own, took, getattr(callback, "__qualname__", str(callback)))
        if len(self.steps) < MOST:
            heapq.heappush(self.steps, (own, next(self._numbers), step))
        else:
            heapq.heappushpop(self.steps, (own, next(self._numbers), step))

    def _waited_for_a_core_s(self) -> float:
        if self._schedule < 0:
            return 0.0
        # proc(5): nanoseconds on a core, waiting for one, and how often
        return int(os.pread(self._schedule, 100, 0).split()[1]) / 1e9


def read_steps(file: Path) -> list[Step]:
    """The longest steps of a service that has ended, longest first."""
    return [Step(*one) for one in json.loads(file.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    from bitfusion_pool.admin.cli import main

    longest = _Longest()
    setattr(asyncio.Handle, "_run", lambda handle: longest.run(handle))  # noqa: B010  # mypy
    status = main(sys.argv[2:])
    found = [step for _, _, step in sorted(longest.steps, reverse=True)]
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
    sys.exit(status)
