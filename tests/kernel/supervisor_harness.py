"""A real supervisor, and misbehaving wrappers and kernels as small scripts."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bitfusion_kernel.processes import launcher, private_folder
from bitfusion_kernel.processes.meeting_point import Gone, Refused, Silent
from bitfusion_kernel.processes.messages import Event, OutputEvent, StartCommand
from bitfusion_kernel.processes.supervisor_link import (
    SupervisorLink,
    join_supervisor,
    start_supervisor,
)
from tests.support.waiting import Deadline

PYTHON = [sys.executable, "-I", "-S", "-c"]
E = TypeVar("E", bound=Event)

# What stands before the program is the wrapper's own behaviour; argv[1:] is the program.
RUN_CHILD = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
RELEASING = (
    "import signal, subprocess, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: None)\n"
    "child = subprocess.Popen(sys.argv[1:])\n"
    "status = child.wait()\n"
    "print('released', flush=True)\n"
    "sys.exit(status)"
)
SLEEP = "import time; time.sleep(60)"


class SupervisorHarness:
    """Sends commands and collects events."""

    def __init__(self, link: SupervisorLink) -> None:
        self.link = link
        self.events: list[Event] = []
        self.said: list[str] = []
        self._number = 0
        self.held_file = ""
        """What the next wrapper has held for it."""

    @property
    def folder(self) -> Path:
        """The private folder, which the supervisor removes at its end."""
        return Path(self.link.folder)

    def start(self, wrapper: str | list[str], kernel: str | None = None, **variables: str) -> None:
        """Start a wrapper script, with the launcher and a kernel script under it if one is given."""
        self._start(wrapper, kernel, variables, 0.0)

    def start_beside(self, wrapper: str | list[str], seconds: float, kernel: str = SLEEP) -> None:
        """The same beside the one that runs."""
        self._start(wrapper, kernel, {}, seconds)

    def _start(
        self, wrapper: str | list[str], kernel: str | None, variables: dict[str, str], beside: float
    ) -> None:
        self._number += 1
        path = str(self.folder / f"launcher-{self._number}")
        argv = wrapper if isinstance(wrapper, list) else [*PYTHON, wrapper]
        if kernel is not None:
            argv = [*argv, *launcher.command(sys.executable, path, [*PYTHON, kernel])]
        environment = dict(os.environ, BF_TEST="told", OTHER_TEST="kept", **variables)
        self.link.start(StartCommand(self._number, argv, environment, path, self.held_file, beside=beside))

    def stop(self) -> None:
        """End what runs."""
        self.link.stop()

    def until(self, kind: type[E], wanted: Callable[[E], bool] = lambda _: True) -> E:
        """The next event of a kind; those before it are dropped."""
        deadline = Deadline(10)
        seen = 0
        while True:
            for event in self.events[seen:]:
                seen += 1
                if isinstance(event, kind) and wanted(event):
                    del self.events[:seen]
                    return event
            assert not deadline.passed, f"no {kind.__name__} in {self.events}"
            assert not self.link.closed, f"supervisor gone; no {kind.__name__} in {self.events}"
            self._receive(deadline.left)

    def until_said(self, text: str) -> None:
        """An output line, wherever it came: its order among other events is open."""
        deadline = Deadline(10)
        while text not in self.said:
            assert not deadline.passed, f"{text} was not said, but {self.said}"
            self._receive(deadline.left)

    def _receive(self, left: float) -> None:
        select.select([self.link], [self.link] if self.link.wants_write else [], [], left)
        self.link.flush()
        received = self.link.events()
        self.said += [event.text for event in received if isinstance(event, OutputEvent)]
        self.events += received

    def leave(self) -> None:
        """Die, as the supervisor sees it."""
        self.link.close()

    @property
    def pid(self) -> int:
        """The supervisor's, which is a child of this process."""
        return self.link.pid

    def wait_for_end(self) -> int:
        """The supervisor's exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def running_supervisor(restarter: int = 0, *, found_again: bool = True) -> Iterator[SupervisorHarness]:
    """One supervisor, which ends with the block if it has not before. Nobody restarts kernels by default."""
    folder = private_folder.create(os.environ)
    harness = SupervisorHarness(start_supervisor(folder, restarter, found_again=found_again))
    try:
        yield harness
    finally:
        harness.stop()
        harness.leave()
        _end_what_is_kept(str(folder))
        try:
            harness.wait_for_end()
        except ChildProcessError:
            pass


def _end_what_is_kept(folder: str) -> None:
    """What waits for the next proxy would wait for seconds."""
    try:
        next_one = join_supervisor(folder, os.getpid())
    except (Gone, Refused, Silent):
        return
    next_one.stop()
    next_one.close()


def gone(pid: int, limit_s: float = 3.0) -> bool:
    """Whether a process is gone, or a zombie, in time."""
    deadline = Deadline(limit_s)
    while True:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        if deadline.passed:
            return False
        time.sleep(0.01)
