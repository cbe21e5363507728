"""Which processes belong to a test: all that carry its pool folder in their environment."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.jupyter.live_kernel import poll


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    session: int
    command: str

    @property
    def role(self) -> str:
        """proxy (or its fork, the supervisor), wrapper, launcher, kernel, or other."""
        if "ipykernel_launcher" in self.command and "launcher.py" not in self.command:
            if "bitfusion" in self.command.split("ipykernel_launcher")[0] and " run " in self.command:
                return "wrapper"
            return "kernel"
        if "/bitfusion run " in self.command or " bitfusion run " in self.command:
            return "wrapper"
        if "launcher.py" in self.command:
            return "launcher"
        if "bitfusion_kernel/__main__.py" in self.command:
            return "proxy"
        return "other"


def read_process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    state, parent, _, session = stat.rsplit(")", 1)[1].split()[:4]
    if state in "ZX":
        return None
    return Process(pid, int(parent), int(session), command.strip())


def processes_with(mark: str) -> list[Process]:
    """All living processes whose environment contains `mark` (NAME=value), this one excepted."""
    wanted = mark.encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            process = read_process(int(entry))
            if process is not None:
                found.append(process)
    return found


def end_of(mark: str, timeout: float) -> list[Process]:
    """The processes still alive after at most `timeout` seconds; empty is good."""
    poll(lambda: not processes_with(mark), timeout, 0.05)
    return processes_with(mark)


def kill_all(mark: str) -> None:
    """End what a failed test left behind, so that the next one is not blamed."""
    for process in processes_with(mark):
        try:
            os.kill(process.pid, signal.SIGKILL)
        except OSError:
            pass
