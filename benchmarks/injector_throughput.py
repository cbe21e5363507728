"""The pod injector in one process, side by side with bare tornado: pods a second, look-ups apart."""

from __future__ import annotations

from benchmarks.admission_load import pod_reviews
from benchmarks.admission_throughput import BARE, OURS, rows_of, server
from benchmarks.effort import Effort
from benchmarks.measure import Row
from benchmarks.workplace import Workplace

TOPIC = "injector_throughput"


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for each size of pod, as for the reviews of `admission_throughput`."""
    with server(BARE, workplace) as bare, server("injector", workplace) as injector:
        servers = {BARE: bare, OURS: injector}
        return [
            row
            for what, (path, review) in pod_reviews().items()
            for row in rows_of(TOPIC, what, path, review, servers, workplace, effort)
        ]
