"""Processes as /proc shows them: found by their environment, waited for, and killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_until

KERNEL_THREAD = 0x00200000
"""``PF_KTHREAD`` among the flags of ``/proc/<pid>/stat``: such a process never has an environment."""
STRANGE_AFTER_S = 5.0
"""Seconds without the variable; between fork and execve a process has its parent's."""
EXECVE_LIMIT_S = 2.0
"""An ``execve`` takes microseconds; on a machine that stands still it is not waited for without end."""


@dataclass(frozen=True, order=True)
class Process:
    """A living process."""

    pid: int
    parent: int
    session: int
    start: str
    """When it started, in clock ticks since boot: tells it from a later process with the same id."""
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command[:300]}"


def read_process(pid: int) -> Process | None:
    """The process with this id; None if there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[1]), int(fields[3]), fields[19], command.strip())


class Strangers:
    """Processes that have not had the variable for a while, and will not get it: they are not read again.

    A look before and after each of thousands of tests would cost a tenth of the whole run.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def others(self, pids: set[int]) -> set[int]:
        """Those of all that there are which must be read."""
        self._since = {pid: since for pid, since in self._since.items() if pid in pids}
        known_at = time.monotonic() - STRANGE_AFTER_S
        return {pid for pid in pids if self._since.get(pid, known_at) >= known_at}

    def note(self, pid: int, has_it: bool) -> None:
        """Whether it has the variable; one that is just being forked has it not yet."""
        if has_it:
            self._since.pop(pid, None)
        else:
            self._since.setdefault(pid, time.monotonic())


def processes_with(
    variable: str, *, begin_only: bool = False, strangers: Strangers | None = None
) -> set[Process]:
    """All living processes that started with an environment variable, this one excepted.

    Args:
        variable: As ``NAME=value``.
        begin_only: Whether `variable` is only the beginning of what is looked for.
        strangers: Of earlier looks for the same.
    """
    wanted = b"\0" + variable.encode() + (b"" if begin_only else b"\0")
    found = set()
    pids = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - {os.getpid()}
    for pid in pids if strangers is None else strangers.others(pids):
        has_it = wanted in b"\0" + read_environment(pid) + b"\0"
        if strangers is not None:
            strangers.note(pid, has_it)
        process = read_process(pid) if has_it else None
        if process is not None:
            found.add(process)
    return found


def read_environment(pid: int) -> bytes:
    """What a process started with; nothing if it has gone meanwhile, is another user's or the kernel's own.

    Between the two halves of an ``execve`` the new program has no environment yet, while `os.posix_spawn` has
    returned already: a third of those that were read at once looked empty (Linux 6).
    """
    environ = Path(f"/proc/{pid}/environ")
    end = time.monotonic() + EXECVE_LIMIT_S
    try:
        if environment := environ.read_bytes():
            return environment
        while _is_in_execve(pid) and time.monotonic() < end:
            time.sleep(0.001)
        return environ.read_bytes()
    except OSError:
        return b""


def _is_in_execve(pid: int) -> bool:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    state, flags, end_of_environment = fields[0], int(fields[6]), int(fields[48])
    return state not in "ZX" and not flags & KERNEL_THREAD and end_of_environment == 0


def alive(pid: int) -> bool:
    """Whether a process has this id and is no zombie."""
    return read_process(pid) is not None


def wait_until_gone(*pids: int, limit_s: float = 3.0) -> None:
    """Wait until none of these processes is alive.

    Raises:
        AssertionError: One of them was alive at the end of `limit_s`.
    """
    wait_until(
        lambda: not any(map(alive, pids)),
        lambda: f"the end of {', '.join(str(read_process(pid)) for pid in pids if alive(pid))}",
        limit_s,
    )


def freeze(pid: int) -> None:
    """SIGSTOP; returns when every thread of the process has stopped."""
    os.kill(pid, signal.SIGSTOP)
    _wait_for_threads(pid, "T")  # the signal stops them one after another


def thaw(pid: int) -> None:
    """SIGCONT: the process goes on."""
    os.kill(pid, signal.SIGCONT)


def unread_bytes(pid: int) -> int:
    """What has come on the process's TCP connections (IPv4), and it has not read."""
    fds = Path(f"/proc/{pid}/fd").iterdir()
    links = [os.readlink(fd) for fd in fds if fd.is_symlink()]  # not one that is closed by now
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in links)


def wait_until_asleep(*pids: int) -> None:
    """Until these processes, one after the other, have done what there was to do, and wait."""
    for pid in pids:
        _wait_for_threads(pid, "S")


def _wait_for_threads(pid: int, state: str) -> None:
    wait_until(
        lambda: set(_thread_states(pid)) == {state},
        f"state {state} of process {pid}",
        errors=(OSError,),  # one may end meanwhile
    )


def _thread_states(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL to each of them that is still there."""
    for process in processes:
        now = read_process(process.pid)
        if now is not None and now.start == process.start:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
