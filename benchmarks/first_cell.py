"""How soon the first cell has its result."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.effort import Effort
from benchmarks.kernel_client import KernelSilent
from benchmarks.measure import AtMost, AtMostMore, AtMostTimes, Goal, Row, interleave
from benchmarks.workplace import FIRST_CELL, PLAIN, START, Variant, Workplace

TOPIC = "first_cell"
CELL, RESULT = "6 * 7", "42"
IDLE_SECONDS = 1.5


def through_wait_for_ready(variant: Variant) -> float:
    """Seconds from ``start_kernel`` to the first cell's reply, as nbclient and papermill get there."""
    with variant.kernel() as kernel:
        client = kernel.manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            reply = client.execute(CELL, reply=True, timeout=60)
            seconds = time.perf_counter() - kernel.started
        finally:
            client.stop_channels()
        if reply["content"]["status"] != "ok":
            raise KernelSilent(f"the first cell ended with {reply['content']}")
        return seconds


def sent_at_once(variant: Variant) -> float:
    """Seconds from ``start_kernel`` to the result of a cell that waits for nothing."""
    with variant.kernel() as kernel, kernel.client() as client:
        cell = client.finish(client.send_cell(CELL), kernel.started, result=True)
        if cell.text != RESULT:
            raise KernelSilent(f"the first cell ended with {cell.status} and {cell.text!r}")
        return cell.seconds


def on_idle_kernel(variant: Variant) -> float:
    """Seconds from sending the first cell to its result, on a kernel that was left alone for a while."""
    with variant.kernel() as kernel, kernel.client() as client:
        client.join_iopub()
        time.sleep(max(0.0, kernel.started + IDLE_SECONDS - time.perf_counter()))
        cell = client.execute(CELL, result=True)
        if cell.text != RESULT:
            raise KernelSilent(f"the first cell ended with {cell.status} and {cell.text!r}")
        return cell.seconds


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """One row for each way to the first cell, with the GPU free."""
    ways: list[tuple[str, Callable[[Variant], float], str, Goal]] = [
        ("start -> first result through wait_for_ready", through_wait_for_ready, START, AtMostTimes(0.8)),
        ("start -> result of a cell sent at once", sent_at_once, FIRST_CELL, AtMostMore(0.080)),
        (f"first cell {IDLE_SECONDS} s after start", on_idle_kernel, FIRST_CELL, AtMost(0.300, "ms")),
    ]
    rows = []
    for what, measure, name, goal in ways:
        samples = interleave(workplace.variants(name), effort.starts, measure)
        rows.append(Row(TOPIC, f"{what}, {name}", "ms", samples[name], samples[PLAIN], goal))
    return rows
