"""One kernel as the launcher's process: its environment, signalling it, ending its whole process group."""

from __future__ import annotations

import os
import signal
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes.process_watch import pids, stat

if TYPE_CHECKING:
    from collections.abc import Mapping

CANNOT_START = 127
"""The status told for a kernel that could not be executed, as a shell tells it."""

GROUP_PATIENCE = 5.0
"""Seconds that the rest of a killed group has to end; what hangs in the system may take longer."""

_PAUSE = 0.002


class KernelProcess:
    """A kernel that has been started; it leads a session and a process group of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def signal(self, number: int) -> None:
        """Pass a signal on to the group. The kernel is not reaped yet, so the number is its own."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass  # it runs as another user now, or has no such signal

    def kill(self) -> None:
        """End the kernel and its group."""
        self.signal(signal.SIGKILL)

    def reap(self, *, wait: bool) -> int | None:
        """Its status if it has ended, and all of its group with it; None if it runs. `wait`: for its end."""
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG))
        if ended is None:
            return None
        self.kill()  # its children; the kernel itself is not reaped yet
        self._await_group()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _await_group(self) -> None:
        """Until nothing of the group runs: it may hold memory of the GPU, or a port of the next kernel's."""
        deadline = time.monotonic() + GROUP_PATIENCE
        while _runs(self.pid) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            self.kill()


def environment_on_lease(
    wanted: Mapping[str, str], wrapped: Mapping[str, str], here: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a later kernel on a lease.

    Args:
        wanted: What its proxy wants it to be.
        wrapped: With what the wrapper was started.
        here: What the wrapper has made of it. What it has set (`LD_PRELOAD`, the lease) or removed wins.
    """
    set_there = {name: value for name, value in here.items() if wrapped.get(name) != value}
    kept = {name: value for name, value in wanted.items() if name in here or name not in wrapped}
    return {**kept, **set_there}


def _runs(group: int) -> bool:
    """Whether anything of a process group runs; the dead who wait to be reaped do not."""
    wanted = str(group)
    return any(
        fields is not None and fields[3] == wanted and fields[1] not in "ZX" for fields in map(stat, pids())
    )
