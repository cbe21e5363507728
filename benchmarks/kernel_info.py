"""Kernel start until the reply to ``kernel_info_request``: how soon Jupyter calls the kernel ready."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.effort import Effort
from benchmarks.kernel_client import DEFAULT_RECONNECT_MS, FAST_RECONNECT_MS
from benchmarks.measure import AtMostTimes, Goal, Row, Shown, interleave
from benchmarks.workplace import FIRST_CELL, PLAIN, START, Variant, Workplace

TOPIC = "kernel_info"


def until_kernel_info(variant: Variant, reconnect_ms: int) -> float:
    """Seconds from ``start_kernel`` to the reply, for a client with this reconnect interval."""
    with variant.kernel() as kernel, kernel.client(reconnect_ms=reconnect_ms) as client:
        client.kernel_info()
        return time.perf_counter() - kernel.started


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for a client that reconnects every millisecond, and for libzmq's default."""
    variants = workplace.variants(FIRST_CELL, START)
    clients: list[tuple[int, Goal]] = [
        (FAST_RECONNECT_MS, AtMostTimes(0.25)),
        (DEFAULT_RECONNECT_MS, Shown()),
    ]
    rows = []
    for reconnect_ms, goal in clients:
        samples = interleave(variants, effort.starts, partial(until_kernel_info, reconnect_ms=reconnect_ms))
        for name in (FIRST_CELL, START):
            what = f"start -> kernel_info_reply, {name}, client reconnects after {reconnect_ms} ms"
            rows.append(Row(TOPIC, what, "ms", samples[name], samples[PLAIN], goal))
    return rows
