"""Interrupt until the cell has ended with KeyboardInterrupt, without and with a child process."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from benchmarks import processes
from benchmarks.effort import Effort
from benchmarks.kernel_client import KernelClient, KernelSilent
from benchmarks.measure import AtMost, Row, interleave
from benchmarks.workplace import FIRST_CELL, PLAIN, Kernel, Workplace

TOPIC = "interrupt"

ALONE = """
import time
print("0", flush=True)
time.sleep(60)
"""
WITH_CHILD = """
import subprocess
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
child.wait()
"""
SETTLE_SECONDS = 0.05  # the cell prints just before it sleeps


def until_interrupted(running: tuple[Kernel, KernelClient], code: str) -> float:
    """Seconds from the manager's interrupt to the cell's error, its child process gone as well."""
    kernel, client = running
    asked = client.send_cell(code)
    child = int(client.wait_for_text(asked))
    time.sleep(SETTLE_SECONDS)
    sent = time.perf_counter()
    kernel.manager.interrupt_kernel()
    cell = client.finish(asked, sent)
    if cell.error_name != "KeyboardInterrupt":
        raise KernelSilent(f"the interrupted cell ended with {cell.status} {cell.error_name}")
    while child and processes.alive(child):
        if time.perf_counter() - sent > 10:
            raise KernelSilent("the cell's child process outlived the interrupt by 10 s")
        time.sleep(0.001)
    return time.perf_counter() - sent


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Two rows: a cell that sleeps, and one that waits for a child process."""
    rows = []
    with ExitStack() as stack:
        kernels: dict[str, tuple[Kernel, KernelClient]] = {}
        for name, variant in workplace.variants(FIRST_CELL).items():
            kernel = stack.enter_context(variant.kernel())
            client = stack.enter_context(kernel.client())
            client.join_iopub()
            client.execute("pass")
            kernels[name] = (kernel, client)
        for what, code in (("", ALONE), (", child process included", WITH_CHILD)):
            samples = interleave(kernels, effort.interrupts, partial(until_interrupted, code=code))
            rows.append(
                Row(
                    TOPIC,
                    f"interrupt -> KeyboardInterrupt{what}",
                    "ms",
                    samples[FIRST_CELL],
                    samples[PLAIN],
                    AtMost(0.2, "ms"),
                )
            )
    return rows
