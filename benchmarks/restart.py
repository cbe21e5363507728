"""How soon a cell has its result after a restart on a kept lease, and after the GPU was given back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import bitfusion_pool
from benchmarks.effort import Effort
from benchmarks.first_cell import CELL, RESULT, on_idle_kernel
from benchmarks.kernel_client import KernelClient, KernelSilent
from benchmarks.measure import AtMost, AtMostTimes, Row, Samples, interleave
from benchmarks.pool_service import OWN, TLS, running_service
from benchmarks.workplace import FIRST_CELL, PLAIN, Kernel, Variant, Workplace

TOPIC = "restart"
RELEASE = "%bitfusion release -y"
CLIENT = str(Path(bitfusion_pool.__file__).with_name("bin") / "bitfusion")
LIMIT_SECONDS = 20.0


def _result(client: KernelClient, asked: str, sent: float) -> float:
    cell = client.finish(asked, sent, result=True)
    if cell.text != RESULT:
        raise KernelSilent(f"the cell ended with {cell.status} and {cell.text!r}")
    return cell.seconds


def through_restart(kernel: Kernel) -> float:
    """Seconds from ``restart_kernel`` to the result of a cell that waits for nothing."""
    began = time.perf_counter()
    kernel.manager.restart_kernel()
    with kernel.client() as client:
        return _result(client, client.send_cell(CELL), began)


def through_first_restart(variant: Variant) -> float:
    """The same for a kernel that has not been restarted before: its first process is a parent of others."""
    with variant.kernel() as kernel:
        with kernel.client() as client:
            client.join_iopub()
            client.execute(CELL)
        return through_restart(kernel)


def after_release(kernel: Kernel) -> float:
    """Seconds from sending a cell to its result, on a kernel that has given its GPU back."""
    with kernel.client() as client:
        client.join_iopub()
        if client.execute(RELEASE).status != "ok":
            raise KernelSilent("the GPU was not given back")
        sent = time.perf_counter()
        return _result(client, client.send_cell(CELL), sent)


def to_next_waiter(kernel: Kernel, variant: Variant) -> float:
    """Seconds from sending ``release`` to the program of somebody who waits for the GPUs."""
    with kernel.client() as client:
        client.join_iopub()
        client.execute(CELL)
        waiter = subprocess.Popen(
            [CLIENT, "run", "-n", "2", "--", "date", "+%s.%N"],
            env={**variant.workplace.environ, **variant.environ},
            cwd=variant.workplace.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiter.stderr is not None
        for line in waiter.stderr:
            if "Waiting for GPUs" in line:
                break
        sent = time.time()
        client.execute(RELEASE)
        printed, _ = waiter.communicate(timeout=LIMIT_SECONDS)
    return float(printed.split()[-1]) - sent


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """A restart, the first one of a kernel, a release, and who waits for what was given back in each pool."""
    with ExitStack() as stack:
        variants = workplace.variants(FIRST_CELL)
        kernels = {name: stack.enter_context(each.kernel()) for name, each in variants.items()}
        for kernel in kernels.values():  # ours gets its lease
            through_restart(kernel)
        restarts = interleave(kernels, effort.starts, through_restart)
        ours, variant = kernels[FIRST_CELL], variants[FIRST_CELL]
        ways = {
            "release": lambda: after_release(ours),
            "new": lambda: on_idle_kernel(variant),
        }
        cells = interleave(ways, effort.starts, lambda measure: measure())
    first = interleave(workplace.variants(FIRST_CELL), effort.starts, through_first_restart)
    with running_service() as way_to:
        turns = {name: _turns(variant, way, effort) for name, way in {OWN: {}, **way_to}.items()}
    return [
        Row(
            TOPIC,
            "restart -> first result, lease kept",
            "ms",
            restarts[FIRST_CELL],
            restarts[PLAIN],
            AtMostTimes(1.1),
        ),
        Row(
            TOPIC,
            "first restart -> first result, lease kept",
            "ms",
            first[FIRST_CELL],
            first[PLAIN],
            AtMostTimes(1.1),
        ),
        Row(
            TOPIC,
            "released, cell -> result; plain: first cell of a new kernel of ours",
            "ms",
            cells["release"],
            cells["new"],
            AtMostTimes(1.1),
        ),
        *(
            Row(
                TOPIC,
                f"release -> next waiter has it: {name}",
                "ms",
                seconds,
                None,
                AtMost(0.5 if name == TLS else 0.3, "ms"),
            )
            for name, seconds in turns.items()
        ),
    ]


def _turns(variant: Variant, way: Mapping[str, str], effort: Effort) -> Samples:
    """Of a kernel that holds all GPUs of a pool which is reached in this way."""
    environ = {**variant.environ, **way, "BITFUSION_GPUS": "2"}
    whole = Variant(FIRST_CELL, variant.spec, variant.workplace, environ)
    with whole.kernel() as kernel:
        measure = partial(to_next_waiter, variant=whole)
        return interleave({FIRST_CELL: kernel}, effort.leases // 5 or 1, measure)[FIRST_CELL]
