"""Acquire and release in the embedded pool, through its command as the kernel uses it."""

from __future__ import annotations

import subprocess
import time

from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMost, Row, interleave
from benchmarks.workplace import Workplace
from bitfusion_client.find_client import find_client

TOPIC = "pool"


def acquire_and_release(command: list[str], workplace: Workplace) -> float:
    """Seconds that a program which does nothing takes under this command."""
    began = time.perf_counter()
    subprocess.run(
        [*command, "/bin/true"],
        env=dict(workplace.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    return time.perf_counter() - began


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """One row: ``bitfusion run`` around a program that ends at once, its own start-up included."""
    client = find_client(None, workplace.environ).path
    acquire = [client, "run", "-n", "1", "--"]
    acquire_and_release(acquire, workplace)  # makes the ledger
    samples = interleave({"run": acquire}, effort.leases, lambda one: acquire_and_release(one, workplace))
    what = "bitfusion run -n 1 -- /bin/true, start to end"
    return [Row(TOPIC, what, "ms", samples["run"], goal=AtMost(20 * MILLISECOND, "ms"))]
