"""A kernel's end is that of its whole process group."""

from __future__ import annotations

import os
import subprocess

from bitfusion_kernel.processes.kernel_process import KernelProcess
from bitfusion_kernel.processes.process_watch import pids, stat
from tests.kernel.supervisor_harness import PYTHON
from tests.support.waiting import wait_until

LARGE = (
    "import sys, time; data = bytearray(100 << 20); data[::4096] = b'x' * len(data[::4096]); time.sleep(60)"
)
"""Memory takes Linux some time to give back."""

LEADER = (
    "import subprocess, sys\n"
    "children = [subprocess.Popen([sys.executable, '-ISc', sys.argv[1]]) for _ in range(8)]\n"
    "sys.stdin.read()"
)


def living(group: int) -> list[int]:
    """Those of a process group that run."""
    found = {pid: stat(pid) for pid in pids()}
    return [pid for pid, each in found.items() if each and each[3] == str(group) and each[1] not in "ZX"]


def test_the_end_is_told_when_nothing_of_the_group_runs_any_more_however_large_it_is() -> None:
    started = subprocess.Popen([*PYTHON, LEADER, LARGE], stdin=subprocess.PIPE, start_new_session=True)
    kernel = KernelProcess(started.pid)

    def is_large() -> bool:
        found = map(stat, living(started.pid))
        pages = sum(int(fields[22]) for fields in found if fields is not None)
        return pages * os.sysconf("SC_PAGESIZE") > 800 << 20

    wait_until(is_large, "all have their memory", 30)
    assert kernel.reap(wait=False) is None
    assert started.stdin is not None
    started.stdin.close()
    assert kernel.reap(wait=True) == 0
    left = living(started.pid)
    started.returncode = 0  # it has been reaped
    assert left == []
