"""Processes as /proc shows them: found by their environment, waited for, and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_until


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


def processes_with(variable: str, *, begin_only: bool = False) -> set[Process]:
    """All living processes that started with an environment variable, this one excepted.

    Args:
        variable: As ``NAME=value``.
        begin_only: Whether `variable` is only the beginning of what is looked for.
    """
    wanted = variable.encode()
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or another user's
        if wanted in variables or (begin_only and any(each.startswith(wanted) for each in variables)):
            process = read_process(int(entry))
            if process is not None:
                found.add(process)
    return found


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
    # The signal stops the threads one after another; one may end meanwhile.
    wait_until(
        lambda: all(state == "T" for state in _thread_states(pid)),
        f"process {pid} to stand still",
        errors=(OSError,),
    )


def thaw(pid: int) -> None:
    """SIGCONT: the process goes on."""
    os.kill(pid, signal.SIGCONT)


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
