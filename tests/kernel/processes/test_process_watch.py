"""Watching processes with pidfds and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from bitfusion_kernel.processes.process_watch import ProcessWatch, pidfds_work, started_at
from tests.support.machine import scaled

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


def _refused(pid: int, flags: int = 0) -> int:
    raise OSError(38, "Function not implemented")


@pytest.fixture(params=["pidfds", "refused", "missing"])
def pidfds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether there are pidfds; Linux may refuse them, Python may not know of them."""
    # Python's own waiting takes what it found when it was started, from 3.15 on
    monkeypatch.setattr(subprocess, "_CAN_USE_PIDFD_OPEN", False, raising=False)
    if request.param == "refused":
        monkeypatch.setattr(os, "pidfd_open", _refused)
    elif request.param == "missing":
        monkeypatch.delattr(os, "pidfd_open")
    return bool(request.param == "pidfds")


def test_a_process_is_seen_alive_signalled_and_gone(pidfds: bool) -> None:
    assert pidfds_work() is pidfds
    process = subprocess.Popen(SLEEP, start_new_session=True)
    watch = ProcessWatch(process.pid)
    assert watch.alive
    assert (watch.fd is not None) is pidfds
    watch.kill_group(signal.SIGKILL)
    assert process.wait(scaled(5)) == -9
    assert not watch.alive
    watch.kill_group(signal.SIGKILL)  # nobody is hit who has got the number since
    watch.close()
    watch.close()
    assert not ProcessWatch(process.pid).alive


@pytest.mark.usefixtures("pidfds")
def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen(SLEEP)
    watch = ProcessWatch(process.pid)
    assert not watch.wait(0.05)
    process.kill()
    assert watch.wait(scaled(5))  # nobody has reaped it
    assert not ProcessWatch(process.pid).alive or watch.fd is not None
    watch.close()
    process.wait()


def test_without_pidfds_a_later_process_of_the_same_number_is_not_hit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    later = subprocess.Popen(SLEEP, start_new_session=True)
    watch = ProcessWatch(later.pid)
    watch._start = "1"  # the process that had this number before began when the machine did
    watch.kill_group(signal.SIGKILL)
    assert later.poll() is None
    assert not watch.alive
    later.kill()
    later.wait()


def test_without_pidfds_and_proc_a_process_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(path: str, *_: object, **__: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr("builtins.open", no_proc)
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    process = subprocess.Popen(SLEEP)
    watch = ProcessWatch(process.pid)
    assert watch.alive
    process.kill()
    process.wait()
    assert not watch.alive


def test_the_start_of_this_process_on_the_wall_clock() -> None:
    code = "import time; from bitfusion_kernel.processes.process_watch import started_at; print(started_at())"
    before = time.time()
    time.sleep(0.02)  # two ticks
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert before + 0.01 <= float(done.stdout) <= time.time()
    assert started_at() < before
