"""The launcher: it never outlives wrapper or supervisor, and its kernel never outlives it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_kernel.processes.launcher import KERNEL_SPEAKS, LAUNCHER, command
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    Command,
    KernelExitedEvent,
    LaunchedEvent,
    Message,
    SignalCommand,
    StopCommand,
)
from tests.kernel.supervisor_harness import PYTHON, SLEEP, gone
from tests.support.machine import scaled

TELL_GROUP = "import os; print(os.getpid(), os.getpgrp(), os.environ['JPY_PARENT_PID'], flush=True)"


class Launched:
    """A launcher whose supervisor is the test."""

    def __init__(self, folder: Path, kernel: str, before: list[str] | None = None) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        path = os.path.relpath(folder / "supervisor")
        path = path if len(path) < 100 else str(folder / "supervisor")
        self._listener.bind(path)
        self._listener.listen(1)
        self._listener.settimeout(scaled(10))
        argv = command(sys.executable, path, [*PYTHON, kernel])
        self.process = subprocess.Popen([*(before or []), *argv], stdout=subprocess.PIPE, text=True)
        connection, _ = self._listener.accept()
        self.supervisor = MessageConnection(connection)
        self._messages: list[Message] = []
        event = self.next()
        assert isinstance(event, LaunchedEvent)
        self.event = event

    def next(self) -> Message:
        """The next message."""
        if not self._messages:
            assert select.select([self.supervisor], [], [], scaled(10))[0]
            self._messages = self.supervisor.receive()
        return self._messages.pop(0)

    def close(self) -> None:
        """End all."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.supervisor.close()
        self._listener.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for a socket."""
    with tempfile.TemporaryDirectory(dir=os.environ["XDG_RUNTIME_DIR"]) as made:
        yield Path(made)


@pytest.mark.parametrize(
    ("kernel", "status", "exit_code"),
    [
        ("raise SystemExit(0)", 0, 0),
        ("raise SystemExit(7)", 7, 7),
        ("import os; os.kill(os.getpid(), 9)", -9, 137),
        ("import os; os.kill(os.getpid(), 15)", -15, 143),
    ],
)
def test_the_kernels_end_is_told_and_the_launcher_ends_when_it_is_told_to(
    folder: Path, kernel: str, status: int, exit_code: int
) -> None:
    launched = Launched(folder, kernel)
    event = launched.next()
    assert isinstance(event, KernelExitedEvent)
    assert event.status == status
    assert launched.process.poll() is None
    launched.supervisor.send(StopCommand())
    assert launched.process.wait(scaled(5)) == exit_code
    launched.close()


def test_the_kernel_leads_its_own_group_and_knows_its_launcher(folder: Path) -> None:
    launched = Launched(folder, TELL_GROUP)
    assert launched.process.stdout is not None
    assert launched.process.stdout.readline() == f"{KERNEL_SPEAKS}\n"
    pid, group, parent = map(int, launched.process.stdout.readline().split())
    assert pid == group == launched.event.kernel_pid
    assert parent == launched.process.pid == launched.event.launcher_pid
    launched.close()


@pytest.mark.parametrize("how", ["sigterm", "stop", "supervisor gone", "sigint then stop"])
def test_each_way_to_end_it_kills_the_kernel(folder: Path, how: str) -> None:
    launched = Launched(folder, "import signal; signal.signal(15, signal.SIG_IGN)\n" + SLEEP)
    kernel = launched.event.kernel_pid
    if how == "sigterm":
        launched.process.send_signal(signal.SIGTERM)
    elif how == "supervisor gone":
        launched.supervisor.close()
    else:
        if how.startswith("sigint"):
            launched.process.send_signal(signal.SIGINT)
            assert not gone(kernel, 0.2)
        launched.supervisor.send(StopCommand())
    assert launched.process.wait(scaled(5)) == 137
    assert gone(kernel, 0.5)
    launched.close()


def test_when_the_wrapper_is_killed_kernel_and_launcher_end(folder: Path) -> None:
    wrapper = [*PYTHON, "import subprocess, sys; subprocess.run(sys.argv[1:])"]
    launched = Launched(folder, SLEEP, wrapper)
    launched.process.kill()
    launched.process.wait()
    assert gone(launched.event.kernel_pid)
    assert gone(launched.event.launcher_pid)
    launched.close()


class OfTomorrow(Command):
    """What a launcher of today does not know; each newer command is that to an older launcher."""

    TYPE = "of tomorrow"


def test_a_command_of_another_version_is_passed_over_and_the_next_is_obeyed(folder: Path) -> None:
    launched = Launched(folder, SLEEP)
    launched.supervisor.send(OfTomorrow())
    launched.supervisor.send(SignalCommand(signal.SIGKILL))
    event = launched.next()
    assert isinstance(event, KernelExitedEvent)
    assert event.status == -signal.SIGKILL
    launched.close()


COUNTS = """
set -e
mkdir -p "$1/memory"
echo "oom_kill 3" | tee "$1/memory.events" > "$1/memory/memory.oom_control"
mount --bind "$1" /sys/fs/cgroup
shift
exec "$@"
"""
"""A box whose control group counts as the kernel says: of version 2, or of version 1."""

KILLED = """
import glob, os, time
while not os.path.exists({!r}):
    time.sleep(0.01)
for file in glob.glob("/sys/fs/cgroup/memory.events") + glob.glob("/sys/fs/cgroup/memory/memory.oom_control"):
    open(file, "w").write("oom_kill {}\\n")
os.kill(os.getpid(), {})
"""


@pytest.mark.parametrize(
    ("count", "number", "told"), [(4, 9, 1), (3, 9, 0), (4, 15, -1)], ids=["oom", "kill -9", "kill"]
)
def test_what_linux_has_killed_beside_the_kernel_is_told(
    folder: Path, count: int, number: int, told: int
) -> None:
    counted = ["unshare", "--mount", "sh", "-c", COUNTS, "sh", str(folder / "cgroups")]
    launched = Launched(folder, KILLED.format(str(folder / "go"), count, number), counted)
    (folder / "go").touch()
    assert launched.next() == KernelExitedEvent(-number, oom_kills=told)
    launched.close()


def test_without_a_supervisor_there_is_no_kernel(folder: Path) -> None:
    argv = command(sys.executable, str(folder / "none"), [*PYTHON, SLEEP])
    assert subprocess.run(argv, timeout=scaled(10), check=False).returncode == 137


def test_a_kernel_that_cannot_be_started_is_told_in_words(folder: Path) -> None:
    argv = command(sys.executable, str(folder / "none"), ["/no/such/kernel"])
    done = subprocess.run(argv, timeout=scaled(10), check=False, capture_output=True, text=True)
    assert done.returncode == 127
    said = "Error: cannot start the kernel /no/such/kernel: No such file or directory"
    assert done.stderr == f"{KERNEL_SPEAKS}\n{said}\n"


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_the_wrapper_has_closed_is_no_hindrance(folder: Path, closed: int) -> None:
    launched = Launched(folder, "raise SystemExit(7)", ["/bin/sh", "-c", f'exec "$@" {closed}>&-', "sh"])
    assert launched.next() == KernelExitedEvent(7)
    launched.close()


@pytest.mark.parametrize("words", [["socket"], ["socket", "--"], ["socket", "python"]])
def test_wrong_usage_is_told(words: list[str]) -> None:
    argv = [sys.executable, "-I", "-S", LAUNCHER, *words]
    done = subprocess.run(argv, timeout=scaled(10), check=False, capture_output=True, text=True)
    assert done.stderr == "usage: launcher.py SOCKET -- KERNEL ARGV...\n"
