"""The doctor's check of process 1: as an init it would reap orphans; a Jupyter as process 1 does not."""

from __future__ import annotations

import os
import subprocess
import time
from typing import NamedTuple

from bitfusion_kernel.install.finding import PASS, WARN, Finding

NEXT_STEP = (
    "start the container with an init: `docker run --init`, tini as the image's entry point, or in "
    "Kubernetes `shareProcessNamespace: true`"
)

REAPED_LIMIT = 5.0
"""Seconds an init may take to reap; some look for orphans only every other second."""

_PAUSE = 0.02


class _Process(NamedTuple):
    name: str
    state: str
    parent: int


def check_process_1() -> Finding:
    """Whether orphans are reaped: by the look of those that are there, otherwise by making one."""
    subject = "process 1"
    zombies = [pid for pid in _pids() if _is_zombie_of_1(pid)]
    orphan = zombies[0] if zombies else _make_orphan()
    parent = _read(orphan)
    adopter = 1 if parent is None else parent.parent
    name = process.name if (process := _read(adopter)) else "unknown"
    deadline = time.monotonic() + REAPED_LIMIT
    while _read(orphan) is not None:
        if time.monotonic() > deadline:
            found = f"process {adopter} ({name}) does not reap orphans: a killed kernel leaves a zombie"
            return Finding(WARN, subject, found, NEXT_STEP)
        time.sleep(_PAUSE)
    return Finding(PASS, subject, f"orphans are reaped by process {adopter} ({name})")


def _make_orphan() -> int:
    """The pid of a process that ends soon and whose parent has."""
    done = subprocess.run(
        ["/bin/sh", "-c", "sleep 0.2 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _is_zombie_of_1(pid: int) -> bool:
    process = _read(pid)
    return process is not None and process.state == "Z" and process.parent == 1


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return _Process(name.partition("(")[2], fields[0], int(fields[1]))
