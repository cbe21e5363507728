"""``python -m benchmarks``: measure, print one table, and judge it by the goals."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from benchmarks.effort import EFFORTS, Effort
from benchmarks.measure import Row, failed
from benchmarks.table import format_table
from benchmarks.workplace import Workplace

Topic = Callable[[Workplace, Effort], list[Row]]

TOPICS = (
    "kernel_info",
    "first_cell",
    "restart",
    "round_trip",
    "output",
    "interrupt",
    "memory",
    "idle",
    "gpu_pod_cells",
    "pool",
    "pool_service",
    "admission_throughput",
    "injector_throughput",
    "device_plugin",
    "pod_stream",
    "lab_page",
)
VERSIONS = ("jupyter_client", "ipykernel", "ipython", "pyzmq")


def load(topic: str) -> Topic:
    """The ``run`` function of a topic's module."""
    run: Topic = import_module(f"benchmarks.{topic}").run
    return run


def measure(topics: Sequence[str], effort: Effort, *, control: bool = False) -> list[Row]:
    """Run the topics one after the other; one that raises becomes a failed row, and the others go on."""
    rows: list[Row] = []
    with Workplace.open(control=control) as workplace:
        for name in topics:
            _say(f"{name} …")
            try:
                rows += load(name)(workplace, effort)
            except Exception as error:
                rows.append(failed(name, error))
                _say(f"{name}: {type(error).__name__}: {error}\n{workplace.log_tail()}")
    return rows


def describe_machine() -> dict[str, object]:
    """What a reader needs to know to compare two tables."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        **{name: version(name) for name in VERSIONS},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exits with 1 when something could not be measured; a missed goal is printed, no error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller outputs")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        choices=TOPICS,
        help=f"one of {', '.join(TOPICS)}; repeatable",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all samples there")
    parser.add_argument(
        "--control", action="store_true", help="measure plain ipykernel against itself: the machine's noise"
    )
    parser.add_argument("--effort", choices=sorted(EFFORTS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    effort = EFFORTS[options.effort or ("quick" if options.quick else "full")]
    names = [name for name in TOPICS if not options.only or name in options.only]
    machine = describe_machine()
    began = time.monotonic()
    rows = measure(names, effort, control=options.control)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if options.control:
        print("control run: 'ours' is plain ipykernel too")
    print(format_table(rows))
    seconds, load = time.monotonic() - began, os.getloadavg()[0]
    print(f"medians of n, taken in turns; {seconds:.0f} s in all; load at the end {load:.2f}")
    if options.json:
        report = {"machine": machine, "rows": [row.to_json() for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(row.ours is None for row in rows) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
