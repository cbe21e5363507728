"""Whether a kernel's processes work: what counts, on figures and on real processes, and how it is told."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bitfusion_kernel.processes import reaper, work_watch
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    KernelCommand,
    LaunchedEvent,
    Message,
    ParkCommand,
    StartedEvent,
    WatchCommand,
    WorkingEvent,
)
from bitfusion_kernel.processes.supervisor_link import join_supervisor
from bitfusion_kernel.processes.work_watch import SHORTEST_INTERVAL, WORKS_FROM, WorkWatch, cpu_seconds, usage
from tests.kernel.supervisor_harness import PYTHON, RUN_CHILD, SLEEP, SupervisorHarness, running_supervisor
from tests.support.machine import scaled
from tests.support.waiting import Deadline, wait_until

TICK = 1 / os.sysconf("SC_CLK_TCK")
LAUNCHER, KERNEL, CHILD, OTHER = (1, "10"), (2, "11"), (3, "12"), (3, "99")


@pytest.mark.parametrize(
    ("before", "after", "ticks"),
    [
        ({}, {}, 0),
        ({KERNEL: (5, 0)}, {KERNEL: (9, 0)}, 4),
        pytest.param({KERNEL: (5, 0)}, {KERNEL: (5, 0), CHILD: (3, 1)}, 4, id="one that is new"),
        pytest.param({KERNEL: (5, 0)}, {KERNEL: (5, 7)}, 7, id="one that came and went"),
        pytest.param(
            {KERNEL: (5, 0), CHILD: (30, 2)}, {KERNEL: (5, 32)}, 0, id="one that was idle till its end"
        ),
        pytest.param({KERNEL: (5, 0), CHILD: (30, 2)}, {KERNEL: (5, 36)}, 4, id="one that worked at its end"),
        pytest.param({KERNEL: (5, 0), CHILD: (900, 0)}, {KERNEL: (9, 0)}, 4, id="nobody reaps, others work"),
        pytest.param({CHILD: (900, 0)}, {OTHER: (4, 0)}, 4, id="the same pid again"),
        pytest.param({LAUNCHER: (0, 0), KERNEL: (70, 9)}, {LAUNCHER: (0, 80)}, 1, id="the kernel has ended"),
    ],
)
def test_what_processes_have_used_between_two_looks(
    before: dict[tuple[int, str], tuple[int, int]], after: dict[tuple[int, str], tuple[int, int]], ticks: int
) -> None:
    assert cpu_seconds(before, after) == pytest.approx(ticks * TICK)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the machine is looked at; the kernel has used 1 CPU second more each time."""
    made: list[float] = []

    def one(*_: object) -> dict[tuple[int, str], tuple[int, int]]:
        made.append(0.0)
        return {KERNEL: (round(len(made) / TICK), 0)}

    monkeypatch.setattr(work_watch, "usage", one)
    return made


def test_nobody_looks_unless_asked_nor_more_often_than_asked(looks: list[float]) -> None:
    watch = WorkWatch()
    assert watch.look(0, KERNEL[0]) == 0
    assert not looks
    watch.every(10)
    assert [watch.look(now, KERNEL[0]) for now in (100, 101, 109.9, 110, 111, 121)] == [0, 0, 0, 10, 0, 11]
    watch.every(5)  # it goes on from the look before
    assert [watch.look(now, KERNEL[0]) for now in (122, 126, 127)] == [0, 5, 0]
    watch.every(0)
    assert watch.look(200, KERNEL[0]) == 0
    watch.every(10)
    assert watch.look(300, KERNEL[0]) == 0  # what was used meanwhile is not known
    assert len(looks) == 5


def test_no_interval_makes_it_look_all_the_time(looks: list[float]) -> None:
    watch = WorkWatch()
    watch.every(1e-9)
    for tenth in range(int(SHORTEST_INTERVAL * 10)):
        watch.look(tenth / 10, KERNEL[0])
    assert len(looks) == 1


@pytest.mark.parametrize(("seconds", "works"), [(1 / WORKS_FROM - 0.1, True), (1 / WORKS_FROM + 0.1, False)])
def test_work_begins_at_a_share_of_a_cpu(looks: list[float], seconds: float, works: bool) -> None:
    watch = WorkWatch()
    watch.every(2)
    watch.look(0, KERNEL[0])
    assert watch.look(seconds, KERNEL[0]) == (seconds if works else 0)


# -- real processes --------------------------------------------------------------------------------

BUSY = "while True: pass"
IN_THREAD = (
    "import threading, time\ndef work():\n    while True: pass\n"
    "threading.Thread(target=work, daemon=True).start()\ntime.sleep(60)"
)
OWN_SESSION = "import subprocess, sys\nsubprocess.run([sys.executable, '-ISc', {!r}], start_new_session=True)"
DAEMON = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass\n"
    "    os._exit(0)\nos.wait(); time.sleep(60)"
)
SHORT_LIVED = (
    "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-ISc', 'sum(range(10**6))'])"
)
OUTPUT_ONLY = "import time\nwhile True: print('still here', flush=True); time.sleep(0.1)"


@pytest.fixture
def family() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of this test's, which is their launcher; ended with all that was theirs."""
    others = reaper.children()
    reaper.adopt_orphans()
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
        reaper.end_strays(others)
        ctypes.CDLL(None).prctl(reaper._PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _share(seconds: float, kernel: int, but: frozenset[int]) -> float:
    """Of one CPU."""
    before, began = usage(kernel, but), time.monotonic()
    time.sleep(seconds)
    return cpu_seconds(before, usage(kernel, but)) / (time.monotonic() - began)


@pytest.mark.parametrize(
    ("code", "works"),
    [
        pytest.param(BUSY, True, id="the kernel itself"),
        pytest.param(IN_THREAD, True, id="a thread"),
        pytest.param(OWN_SESSION.format(BUSY), True, id="a child in a session of its own"),
        pytest.param(DAEMON, True, id="a daemon"),
        pytest.param(SHORT_LIVED, True, id="children that come and go"),
        pytest.param(OWN_SESSION.format(SLEEP), False, id="a child that sleeps"),
        pytest.param(OUTPUT_ONLY, False, id="output only"),
    ],
)
def test_each_kind_of_process_works_or_does_not(
    code: str, works: bool, family: list[subprocess.Popen[bytes]]
) -> None:
    others = reaper.children()
    family.append(subprocess.Popen([*PYTHON, code], start_new_session=True, stdout=subprocess.DEVNULL))
    deadline = Deadline(5)
    # Twice, as the start of each is work.
    while any((_share(0.2, family[0].pid, others) >= WORKS_FROM) is not works for _ in range(2)):
        assert not deadline.passed


def test_a_process_of_the_wrappers_own_is_not_the_kernels(family: list[subprocess.Popen[bytes]]) -> None:
    family.append(subprocess.Popen([*PYTHON, BUSY]))
    others = reaper.children()
    kernel = subprocess.Popen([*PYTHON, SLEEP], start_new_session=True)
    family.append(kernel)
    assert family[0].pid in {pid for pid, _ in usage(kernel.pid, ())}
    assert {pid for pid, _ in usage(kernel.pid, others)} == {os.getpid(), kernel.pid}


def test_without_proc_nothing_is_known_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_watch, "pids", list)
    assert usage(1, ()) == {}
    assert cpu_seconds({}, {}) == 0


LOOP = "import tornado.ioloop\ntornado.ioloop.PeriodicCallback(lambda: None, 100).start()"
PLOT = "%matplotlib inline\nimport matplotlib.pyplot\nmatplotlib.pyplot.plot([1, 2])"


@pytest.mark.parametrize("line", ["", LOOP, pytest.param(PLOT, marks=pytest.mark.long)])
def test_a_real_kernel_that_nobody_uses_is_idle(
    line: str, family: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    others = reaper.children()
    done = tmp_path / "done"
    lines = [*line.splitlines(), f"open({str(done)!r}, 'w').close()"]
    options = [f"--IPKernelApp.exec_lines={each}" for each in lines]
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", str(tmp_path / "kernel.json"), *options]
    environment = dict(os.environ, JPY_PARENT_PID=str(os.getpid()))
    family.append(subprocess.Popen(argv, start_new_session=True, stderr=subprocess.DEVNULL, env=environment))
    wait_until(done.exists, "the kernel is there", 60)
    deadline = Deadline(10)
    while _share(2, family[0].pid, others) >= WORKS_FROM / 2:
        assert not deadline.passed


# -- from the launcher to the proxy ------------------------------------------------------------------


def test_the_launcher_tells_the_proxy_of_work_by_the_kernel_that_runs_now() -> None:
    with running_supervisor() as first:
        first.link.watch(SHORTEST_INTERVAL)
        first.start(RUN_CHILD, SLEEP)
        first.until(LaunchedEvent)
        first.link.run_kernel(KernelCommand(2, [*PYTHON, BUSY], dict(os.environ), {}))
        told = first.until(WorkingEvent)
        assert told.kernel == 2
        assert SHORTEST_INTERVAL <= told.seconds < SHORTEST_INTERVAL + scaled(2)


@contextmanager
def _own_launcher(first: SupervisorHarness) -> Iterator[MessageConnection]:
    """A launcher's connection to the supervisor, with a wrapper that does nothing."""
    first.start(SLEEP)
    first.until(StartedEvent)  # its socket is there before it listens
    path = str(first.folder / "launcher-1")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        yield MessageConnection(connection)


def _next(launcher: MessageConnection) -> Message:
    received = wait_until(launcher.receive, "a command for the launcher")
    assert len(received) == 1
    return received[0]


def test_a_launcher_that_comes_later_is_asked_too_and_each_proxy_asks_for_itself() -> None:
    with running_supervisor() as first:
        first.link.watch(7)
        with _own_launcher(first) as launcher:
            launcher.send(LaunchedEvent(0, 0, {}))
            first.until(LaunchedEvent)
            assert _next(launcher) == WatchCommand(7)
            first.link.watch(5)
            assert _next(launcher) == WatchCommand(5)
            launcher.send(WorkingEvent(5.5, kernel=1))  # not the one that is wanted now
            launcher.send(WorkingEvent(6.5))
            assert first.until(WorkingEvent) == WorkingEvent(6.5)
            first.leave()
            assert _next(launcher) == ParkCommand(0)
            second = SupervisorHarness(join_supervisor(str(first.folder), os.getpid()))
            try:
                assert wait_until(launcher.receive)[0] == WatchCommand(0)
            finally:
                os.kill(second.link.kept.pid, signal.SIGKILL)
                second.leave()
