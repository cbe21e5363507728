"""Round trip of a trivial cell on a running kernel: what the relay adds to every cell."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.effort import Effort
from benchmarks.kernel_client import KernelClient
from benchmarks.measure import MILLISECOND, AtMostMore, Row, Samples, interleave, percentile
from benchmarks.workplace import FIRST_CELL, PLAIN, Workplace

TOPIC = "round_trip"
WARM_UP_CELLS = 20


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Median over cells ``pass``, sent in turns to both kernels, until reply and idle are there."""
    with ExitStack() as stack:
        clients: dict[str, KernelClient] = {}
        for name, variant in workplace.variants(FIRST_CELL).items():
            kernel = stack.enter_context(variant.kernel())
            clients[name] = stack.enter_context(kernel.client())
            clients[name].join_iopub()
            for _ in range(min(WARM_UP_CELLS, effort.cells)):
                clients[name].execute("pass")
        samples = interleave(clients, effort.cells, lambda client: client.execute("pass").seconds)
    note = ", ".join(f"{name} p95 {_p95(samples[name]):.2f} ms" for name in (PLAIN, FIRST_CELL))
    what = "round trip of a trivial cell, reply and idle"
    return [Row(TOPIC, what, "ms", samples[FIRST_CELL], samples[PLAIN], AtMostMore(0.3 * MILLISECOND), note)]


def _p95(samples: Samples) -> float:
    return percentile(samples.values, 0.95) / MILLISECOND
