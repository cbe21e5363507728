"""How slow this machine is at the moment: the one factor that scales every time limit of the tests.

A time limit in a test says how long something may take on a calm machine of the reference's speed. Call
`scaled` on it wherever it is used. The factor is measured once for a run, by its first process, and handed to
the others in the environment; ``TESTS_TIME_FACTOR=8 pytest ...`` sets it by hand.
"""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys
from collections.abc import Sequence

VARIABLE = "TESTS_TIME_FACTOR"

_REFERENCE_S = 0.018
"""CPU time of `_WORK` on the machine for which the limits were chosen (2 cores, Python 3.11)."""
_WORK = (sys.executable, "-I", "-S", "-c", "sum(i * i for i in range(50_000))")
_LARGEST = 20.0


def scaled(seconds: float) -> float:
    """The time limit `seconds` as it is on this machine.

    Args:
        seconds: The limit on a calm machine of the reference's speed.
    """
    return seconds * time_factor()


@functools.cache
def time_factor() -> float:
    """The factor of this run, at least 1."""
    told = os.environ.get(VARIABLE)
    return max(1.0, float(told)) if told else measure(1)


def share_time_factor(workers: int) -> None:
    """Measure the factor for a run with so many test processes and hand it to all of them."""
    os.environ.setdefault(VARIABLE, f"{measure(workers):.2f}")
    time_factor.cache_clear()


def measure(workers: int) -> float:
    """The factor for `workers` test processes beside what runs on this machine already."""
    slowness = max(1.0, _cpu_time(_WORK) / _REFERENCE_S)
    cpus = len(os.sched_getaffinity(0))
    crowd = max(1.0, (_running_processes() + workers) / cpus)
    return min(_LARGEST, slowness * crowd)


def _cpu_time(command: Sequence[str], rounds: int = 5) -> float:
    """The CPU time in seconds of one run of the command, which does not count the time others are given."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(rounds):
        subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / rounds


def _running_processes() -> float:
    """How many processes want a CPU, this one excepted: at this moment or on average of the last minute."""
    with open("/proc/loadavg") as file:
        fields = file.read().split()
    return max(float(fields[0]), float(fields[3].split("/")[0]) - 1)
