"""The embedded pool in the common table; ``pool_acquire_release`` measures it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMost, Goal, Row, Samples, Shown, interleave
from benchmarks.pool_acquire_release import (
    killed_to_next,
    library_cycle,
    queue_of_waiters,
    run_before_program,
    run_whole,
)
from benchmarks.workplace import Workplace

TOPIC = "pool"


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for acquire and release, for the command around it, for a killed holder, and for a long queue."""
    alone = {"BITFUSION_POOL_DIR": str(workplace.folder / "pool-alone"), "BITFUSION_PYTHON": sys.executable}
    environ = {**workplace.environ, **alone}
    library_cycle(environ)  # makes the ledger
    figures: list[tuple[str, Callable[[Mapping[str, str]], float], int, Goal]] = [
        ("acquire and release in the pool", library_cycle, effort.leases, AtMost(20 * MILLISECOND, "ms")),
        ("bitfusion run until its program starts", run_before_program, effort.leases, Shown()),
        ("bitfusion run -n 1 -- true, start to end", run_whole, effort.leases, Shown()),
        ("holder killed -> the next one has its GPUs", killed_to_next, effort.kills, AtMost(2.0, "ms")),
    ]
    rows = []
    for what, measure, repetitions, goal in figures:
        samples = interleave({what: environ}, repetitions, measure)
        rows.append(Row(TOPIC, what, "ms", samples[what], goal=goal))
    queue = queue_of_waiters(environ, effort.waiters)
    order = "strictly in order" if queue.in_order else "NOT in order"
    rows.append(
        Row(
            TOPIC,
            f"{effort.waiters} waiters served one after the other",
            "ms",
            Samples((queue.seconds / effort.waiters,)),
            goal=AtMost(20 * MILLISECOND, "ms"),
            note=f"each; {order}, while waiting {queue.busy:.1%} of a core",
            whole=queue.in_order,
        )
    )
    rows.append(
        Row(
            TOPIC,
            f"CPU of one release, with {effort.waiters} waiters",
            "ms",
            Samples((queue.release,)),
            goal=AtMost(2.0, "ms"),
            note="of all of them, until the last has seen it",
        )
    )
    return rows
