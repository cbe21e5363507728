"""The helpers that all tests share: waiting, time limits that scale, ports, processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from jupyter_client.connect import LocalPortCache

from tests.support import machine, ports, processes
from tests.support.processes import (
    alive,
    kill,
    processes_with,
    read_environment,
    read_process,
    wait_until_gone,
)
from tests.support.waiting import Deadline, wait_until, wait_until_settled


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time limits as they stand, so that a wait which must fail fails soon."""
    monkeypatch.setenv(machine.VARIABLE, "1")
    machine.time_factor.cache_clear()
    yield
    machine.time_factor.cache_clear()


def test_waiting_returns_the_first_true_value() -> None:
    values = iter([0, None, False, "yes", "later"])
    assert wait_until(lambda: next(values)) == "yes"


@pytest.mark.usefixtures("calm")
def test_waiting_in_vain_tells_what_for_and_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0\.02 s: the moon; last seen: 0$"):
        wait_until(lambda: 0, "the moon", 0.02)
    with pytest.raises(AssertionError, match="told late"):
        wait_until(lambda: 0, lambda: "told late", 0.02)


def test_only_named_errors_count_as_not_yet() -> None:
    answers: Iterator[object] = iter([OSError("refused"), "yes"])

    def ask() -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert wait_until(ask, errors=(OSError,)) == "yes"
    with pytest.raises(StopIteration):
        wait_until(ask, errors=(OSError,))


def test_waits_share_a_deadline_that_is_past() -> None:
    deadline = Deadline(0)
    assert (deadline.passed, deadline.left, deadline.left_ms) == (True, 0, 0)
    assert wait_until(lambda: True, limit_s=deadline), "one look is always taken"
    with pytest.raises(AssertionError):
        wait_until(lambda: False, limit_s=deadline)


@pytest.mark.usefixtures("calm")
def test_a_value_settles_or_does_not() -> None:
    values = iter([1, 2])
    assert wait_until_settled(lambda: next(values, 2), quiet_s=0.05) == 2
    count = iter(range(1000))
    with pytest.raises(AssertionError, match="not settled within"):
        wait_until_settled(lambda: next(count), quiet_s=60, limit_s=0.3)


@pytest.mark.usefixtures("calm")
def test_limits_scale_with_the_factor_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.VARIABLE, "2.5")
    machine.time_factor.cache_clear()
    assert machine.scaled(2) == 5
    assert Deadline(2).limit_s == 5
    monkeypatch.setenv(machine.VARIABLE, "0.1")
    machine.time_factor.cache_clear()
    assert machine.scaled(2) == 2, "a limit is never shorter than it says"


def test_the_factor_grows_with_the_test_processes_per_cpu() -> None:
    cpus = len(os.sched_getaffinity(0))
    assert machine.measure(1) >= 1
    assert machine.measure(4 * cpus) >= 4


def test_no_other_process_is_given_a_port() -> None:
    mine = ports.free_ports(200)
    assert len(set(mine)) == 200
    other = subprocess.run(
        [sys.executable, "-c", "from tests.support.ports import free_ports; print(*free_ports(2000))"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert not set(mine) & set(map(int, other.stdout.split()))


def test_a_kernels_ports_are_reserved_until_its_manager_returns_them() -> None:
    kernel_ports = LocalPortCache.instance()
    port = kernel_ports.find_available_port("127.0.0.1")
    reservation = f"\0kubeflow-bitfusion-test-port-{port}"
    with socket.socket(socket.AF_UNIX) as other:
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(reservation)
        kernel_ports.return_port(port)
        other.bind(reservation)


def test_a_process_that_was_started_just_now_is_found() -> None:
    found = set()
    for _ in range(100):
        pid = os.posix_spawn("/bin/sleep", ["sleep", "47"], {"MARK": "just now"})
        found.add(read_environment(pid))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert found == {b"MARK=just now\0"}


def test_a_stranger_is_read_no_more_but_one_that_is_just_being_forked_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def reads(pid: int) -> bytes:
        read.append(pid)
        return read_environment(pid)

    monkeypatch.setattr(processes, "read_environment", reads)
    own = os.getpid()  # another run of these tests has its own
    strangers, ready = processes.Strangers(), "import os, sys; sys.stdin.read(1); os.execve"
    become = f"{ready}('/bin/sleep', ['sleep', '47'], {{'MARK': '{own}'}})"
    with subprocess.Popen([sys.executable, "-ISc", become], stdin=subprocess.PIPE, env={}) as forked:
        try:
            assert processes_with(f"MARK={own}", strangers=strangers) == set()
            assert forked.stdin is not None
            forked.stdin.write(b"x")
            forked.stdin.flush()
            wait_until(lambda: processes_with(f"MARK={own}", strangers=strangers), "the one after its execve")
            now = time.monotonic()
            monkeypatch.setattr(time, "monotonic", lambda: now + 2 * processes.STRANGE_AFTER_S)
            read.clear()
            (found,) = processes_with(f"MARK={own}", strangers=strangers)
            assert found.pid == forked.pid
            assert os.getppid() not in read
        finally:
            forked.kill()


def test_processes_are_found_by_their_environment_and_ended() -> None:
    own = os.getpid()  # another run of these tests has its own
    with subprocess.Popen(["sleep", "100"], env={"MARK": f"{own}/b"}) as sleeper:
        try:
            wait_until(lambda: processes_with(f"MARK={own}/b"), "exec")
            assert {each.pid for each in processes_with(f"MARK={own}/", begin_only=True)} == {sleeper.pid}
            assert processes_with(f"MARK={own}/") == set()
            (found,) = processes_with(f"MARK={own}/b")
            assert (found.parent, found.command) == (os.getpid(), "sleep 100")
            with pytest.raises(AssertionError, match=rf"the end of process {sleeper.pid}: sleep 100"):
                wait_until_gone(sleeper.pid, limit_s=0.05)
        finally:
            kill(processes_with(f"MARK={own}/b"))
        wait_until_gone(sleeper.pid)
        assert not alive(sleeper.pid), "a zombie is not alive"
    assert read_process(sleeper.pid) is None
