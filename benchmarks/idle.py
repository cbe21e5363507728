"""CPU time of a kernel that does nothing, with `idle_release` and without: what the watch costs."""

from __future__ import annotations

import os
import time

from benchmarks import processes
from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMostMore, Row, interleave
from benchmarks.processes import KERNEL
from benchmarks.workplace import FIRST_CELL, Variant, Workplace

TOPIC = "idle"
SECONDS = 20.0
WATCHED, UNWATCHED = "watched", "unwatched"
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(variant: Variant) -> float:
    """Of all processes but the kernel itself, in `SECONDS` after a cell."""
    with variant.kernel() as kernel, kernel.client() as client:
        client.join_iopub()
        client.execute("pass")
        roles = processes.roles(kernel.mark, kernel.pid)
        ours = [pid for pid, role in roles.items() if role != KERNEL]
        time.sleep(1.0)  # what a start leaves for later
        before = sum(map(_used, ours))
        time.sleep(SECONDS)
        return sum(map(_used, ours)) - before


def _used(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """One row."""
    plain = workplace.variant(FIRST_CELL)
    watched = Variant(FIRST_CELL, plain.spec, workplace, {**plain.environ, "BITFUSION_IDLE_RELEASE": "20m"})
    found = interleave({WATCHED: watched, UNWATCHED: plain}, effort.memory, cpu_seconds)
    what = f"CPU of an idle kernel's chain in {SECONDS:.0f} s, with idle_release; plain: without"
    return [Row(TOPIC, what, "ms", found[WATCHED], found[UNWATCHED], AtMostMore(40 * MILLISECOND))]
