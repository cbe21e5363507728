"""Whether a kernel's processes work, told by their CPU time: a thread, a child process, a server of a cell's.

Used by the launcher, who stands beside the kernel wherever that is, for a proxy that gives the GPU of an idle
kernel back. Looked at are all that descend from the launcher, sessions of their own included, and the
kernel's process group. Standard library only; pids are numbered where the launcher is.

What is seen, and what is not:

- A process that has ended in between counts by what its parent has reaped of it, at the last the launcher.
  A parent that ignores SIGCHLD reaps nothing: of its children only those count that are met alive.
- A process that left the launcher's family is not seen: where the launcher cannot adopt orphans (no ctypes),
  that is a daemon.
- A program that waits for the network, a disk or a lock uses no CPU: that is idle.
- The GPU itself is not asked. A thread that waits for one uses its CPU: CUDA spins or yields meanwhile,
  unless a program asks for `cudaDeviceScheduleBlockingSync`. NVIDIA tells what a process computes by NVML
  only, which loads its driver's library into the launcher, names processes as the host numbers them, and
  knows nothing of a GPU on another machine; the load of a whole GPU is also that of others who share it.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes.process_watch import pids, stat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Usage = Mapping[tuple[int, str], tuple[int, int]]

WORKS_FROM = 0.05
"""The share of one CPU from which on processes work.

An idle ipykernel uses 0.01 % (no client) to 0.25 % (its usage is asked for every 5 s; a callback in its event
loop every 100 ms); an event loop that is polled every 10 ms, as those of wx and GTK are, 2 %. One thread that
computes uses 100 %. `%gui asyncio` polls so eagerly (10 %) that it counts as work.
"""

SHORTEST_INTERVAL = 2.0
"""Seconds between two looks at least. A look costs 20 µs for each process on the machine, or in its pod."""

_TICKS = os.sysconf("SC_CLK_TCK")


class WorkWatch:
    """Looks at the processes now and then, if it is asked to. Times are `time.monotonic()`.

    `but` are children of this process that are not the kernel's, nor will be: a wrapper's own.
    """

    def __init__(self, but: Collection[int] = ()) -> None:
        self._but = but
        self._interval = 0.0
        self._at = 0.0
        self._before: Usage | None = None

    def every(self, seconds: float) -> None:
        """From now on look so often; 0 or less: not at all, until it is called again."""
        self._interval = max(seconds, SHORTEST_INTERVAL) if seconds > 0 else 0.0
        if not self._interval:
            self._before = None

    def look(self, now: float, kernel: int | None) -> float:
        """Look, if it is time to. Within how many seconds they have worked; 0 if they have not, or it isn't.

        The first look finds nothing: it has none before it. `kernel` is the pid of the kernel, if one runs.
        """
        if not self._interval or (self._before is not None and now - self._at < self._interval):
            return 0.0
        after = usage(kernel, self._but)
        before, seconds = self._before, now - self._at
        self._before, self._at = after, now
        if before is None or cpu_seconds(before, after) < WORKS_FROM * seconds:
            return 0.0
        return seconds


def cpu_seconds(before: Usage, after: Usage) -> float:
    """What the processes have used between two looks. Pure.

    Those that have ended are among what their parents have reaped, with all they have used ever: what was
    known of that before is taken off, and never from what others have used meanwhile.
    """
    none = 0, 0
    own = sum(max(0, each - before.get(key, none)[0]) for key, (each, _) in after.items())
    reaped = sum(each for _, each in after.values()) - sum(each for _, each in before.values())
    ended = sum(each for key, (each, _) in before.items() if key not in after)
    return (own + max(0, reaped - ended)) / _TICKS


def usage(kernel: int | None, but: Collection[int]) -> Usage:
    """Of each process, by pid and start time: ticks of CPU that it has used, and that it has reaped.

    Of this process only what it has reaped; nothing where there is no /proc.
    """
    own = os.getpid()
    found = {pid: fields for pid in pids() if (fields := stat(pid)) is not None}
    of_parent: dict[str, list[int]] = {}
    for pid, fields in found.items():
        of_parent.setdefault(fields[2], []).append(pid)
    family: set[int] = set()
    to_come = [
        own,
        *(pid for pid, fields in found.items() if kernel is not None and fields[3] == str(kernel)),
    ]
    while to_come:
        pid = to_come.pop()
        if pid not in family and pid not in but:
            family.add(pid)
            to_come += of_parent.get(str(pid), ())
    return {
        (pid, fields[20]): (0 if pid == own else int(fields[12]) + int(fields[13]), _reaped(fields))
        for pid in family
        if (fields := found.get(pid)) is not None
    }


def _reaped(fields: list[str]) -> int:
    return int(fields[14]) + int(fields[15])
