"""How much of everything a run measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Repetitions and sizes of one run; goals are only judged fairly at ``FULL``."""

    starts: int
    """Kernel starts for each way of starting and each variant."""
    cells: int
    """Trivial cells for each variant."""
    volumes: int
    """Repetitions of each cell with much output."""
    megabytes: int
    large_displays: int
    small_displays: int
    interrupts: int
    memory: int
    """Kernel starts for each figure about memory."""
    unread_displays: int
    leases: int
    """Leases taken and given back in the pool."""
    kills: int
    waiters: int
    loads: int
    """Loads of an admission server, for each number of connections."""
    load_seconds: float
    reviews: int
    """Admission reviews between two looks at the memory."""
    page_seconds: float
    """How long an open page of JupyterLab is watched."""


FULL = Effort(
    starts=15,
    cells=500,
    volumes=5,
    megabytes=100,
    large_displays=100,
    small_displays=20_000,
    interrupts=10,
    memory=3,
    unread_displays=600,
    leases=100,
    kills=10,
    waiters=1_000,
    loads=3,
    load_seconds=3,
    reviews=20_000,
    page_seconds=60,
)
QUICK = Effort(
    starts=5,
    cells=300,
    volumes=3,
    megabytes=20,
    large_displays=30,
    small_displays=4_000,
    interrupts=4,
    memory=1,
    unread_displays=200,
    leases=30,
    kills=5,
    waiters=50,
    loads=3,
    load_seconds=1,
    reviews=5_000,
    page_seconds=30,
)
TINY = Effort(
    starts=1,
    cells=3,
    volumes=1,
    megabytes=1,
    large_displays=2,
    small_displays=20,
    interrupts=1,
    memory=1,
    unread_displays=5,
    leases=3,
    kills=1,
    waiters=5,
    loads=1,
    load_seconds=0.1,
    reviews=20,
    page_seconds=1,
)
"""Shows only that everything runs; the tests use it."""
EFFORTS = {"full": FULL, "quick": QUICK, "tiny": TINY}
