"""A wrapper that asks for another lease beside the one that runs: it takes its place, or leaves no trace."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_kernel.processes import beside
from bitfusion_kernel.processes.messages import (
    GrantedEvent,
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    StartedEvent,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.processes.supervisor_link import join_supervisor
from tests.kernel.supervisor_harness import (
    RELEASING,
    RUN_CHILD,
    SLEEP,
    SupervisorHarness,
    gone,
    running_supervisor,
)
from tests.support.machine import scaled
from tests.support.waiting import wait_until

LONG = 60.0
QUEUED = "print('position 1 of 1', flush=True)\n" + SLEEP


@pytest.fixture
def first() -> Iterator[SupervisorHarness]:
    """A supervisor whose wrapper runs a kernel."""
    with running_supervisor(os.getpid()) as harness:
        harness.start(RELEASING, SLEEP)
        yield harness


def kernel_of(harness: SupervisorHarness) -> int:
    return harness.until(LaunchedEvent).kernel_pid


def is_beside(number: int, event: StartedEvent) -> bool:
    return event.beside == number


def test_one_that_is_granted_takes_the_place_of_the_one_that_has_ended(first: SupervisorHarness) -> None:
    old = kernel_of(first)
    first.start_beside(RELEASING, LONG)
    assert first.until(StartedEvent).beside == 2
    assert first.until(GrantedEvent).number == 2
    assert not gone(old, 0), "both run"
    first.link.stop(spares_beside=True)
    assert first.until(WrapperExitedEvent).number == 1
    assert gone(old, 0)
    first.link.take()
    new = first.until(LaunchedEvent)
    assert not gone(new.kernel_pid, 0)
    first.link.signal(signal.SIGTERM)
    assert first.until(KernelExitedEvent).status == -signal.SIGTERM
    first.stop()
    assert first.until(WrapperExitedEvent).number == 2
    first.until(StoppedEvent)


def test_one_after_another_takes_its_place_and_says_its_lines_as_the_wrapper(
    first: SupervisorHarness,
) -> None:
    kernel_of(first)
    for number in (2, 3, 4):
        first.start_beside(f"print('beside {number}', flush=True)\n" + RELEASING, LONG)
        line = first.until(OutputEvent, lambda event: event.text.startswith("beside"))
        assert (line.text, line.beside) == (f"beside {number}", number)
        first.until(GrantedEvent)
        first.link.stop(spares_beside=True)
        first.until(WrapperExitedEvent)
        first.link.take()
        kernel_of(first)
    first.stop()
    assert first.until(OutputEvent, lambda event: event.text == "released").beside == 0


def test_what_a_taken_one_has_said_is_told_to_the_next_proxy(first: SupervisorHarness) -> None:
    kernel_of(first)
    first.start_beside("print('position 1 of 1', flush=True)\n" + RELEASING, LONG)
    first.until(GrantedEvent)
    first.link.stop(spares_beside=True)
    first.until(WrapperExitedEvent)
    first.link.take()
    kernel_of(first)
    first.link.park(LONG)
    first.leave()
    second = SupervisorHarness(join_supervisor(str(first.folder), os.getpid()))
    kept = second.link.kept
    assert (kept.number, kept.kernels, kept.granted_at > 0) == (2, 2, True)
    assert "oposition 1 of 1" in kept.lines
    second.stop()
    second.leave()


@pytest.mark.parametrize("queued", [True, False])
def test_one_that_has_nothing_in_time_is_ended_and_the_other_goes_on(
    first: SupervisorHarness, queued: bool
) -> None:
    old = kernel_of(first)
    began = time.monotonic()
    first.start_beside(QUEUED, 0.6) if queued else first.start_beside(RELEASING, LONG)
    if not queued:
        first.until(GrantedEvent)
        first.link.drop()
    assert first.until(WrapperExitedEvent).number == 2
    if queued:
        assert 0.6 <= time.monotonic() - began < scaled(3)
    assert not gone(old, 0)
    first.start_beside(RELEASING, LONG)
    assert first.until(GrantedEvent).number == 3, "another one may ask"


def test_one_that_stands_still_is_ended_in_time_all_the_same(first: SupervisorHarness) -> None:
    old = kernel_of(first)
    for number, limit in enumerate((0.6, 6.0, 30.0), 2):  # longer where it had ended before it stood still
        began = time.monotonic()
        first.start_beside(QUEUED, limit)
        pid = first.until(StartedEvent, partial(is_beside, number)).pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        status = first.until(WrapperExitedEvent).status
        if status == -signal.SIGKILL:
            break
    assert status == -signal.SIGKILL
    assert time.monotonic() - began < limit + scaled(3)
    assert not gone(old, 0)


def test_what_nobody_takes_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "TAKE_PATIENCE", 0.5)
    with running_supervisor() as first:
        first.start(RELEASING, SLEEP)
        old = kernel_of(first)
        first.start_beside(RELEASING, LONG)
        first.until(GrantedEvent)
        assert first.until(WrapperExitedEvent).number == 2
        assert not gone(old, 0)
        first.link.take()  # too late
        first.start_beside("print('asks', flush=True)\n" + RELEASING, LONG)
        assert first.until(GrantedEvent).number == 3


@pytest.mark.parametrize("how", ["stop", "park", "proxy dies"])
def test_no_second_lease_is_left_where_the_proxy_goes(first: SupervisorHarness, how: str) -> None:
    kernel_of(first)
    first.start_beside(QUEUED, LONG)
    waits = first.until(StartedEvent, lambda event: event.beside == 2).pid
    if how == "stop":
        first.stop()
    elif how == "park":
        first.link.park(LONG)
    else:
        first.leave()
    wait_until(lambda: gone(waits, 0), "the end of the request")
    if how == "park":
        assert first.until(WrapperExitedEvent).number == 2
        first.stop()
        assert first.until(WrapperExitedEvent).number == 1


def test_a_second_one_beside_is_refused(first: SupervisorHarness) -> None:
    kernel_of(first)
    first.start_beside(QUEUED, LONG)
    first.start_beside(QUEUED, LONG)
    assert first.until(OutputEvent, lambda event: event.beside == 3).text.startswith("Error: the request")
    assert first.until(WrapperExitedEvent).number == 3
    first.link.drop()
    assert first.until(WrapperExitedEvent).number == 2


def test_one_that_cannot_be_executed_is_told_with_its_number(first: SupervisorHarness) -> None:
    old = kernel_of(first)
    first.start_beside(["/nowhere/bitfusion"], LONG)
    assert first.until(OutputEvent, lambda event: event.beside == 2).text == (
        "Error: cannot start /nowhere/bitfusion: No such file or directory"
    )
    assert first.until(WrapperExitedEvent).number == 2
    assert not gone(old, 0)


def test_the_end_of_one_kills_nothing_of_the_other(first: SupervisorHarness, tmp_path: Path) -> None:
    """What has left its kernel's group ends with its own lease, and with no other."""
    old = kernel_of(first)
    stray = tmp_path / "stray"
    leaves = (
        "import subprocess, time; "
        f"child = subprocess.Popen(['sleep', '60'], start_new_session=True); "
        f"open({str(stray)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    first.start_beside(RELEASING, LONG, leaves)
    first.until(GrantedEvent)
    pid = int(wait_until(lambda: stray.exists() and stray.read_text(), "the stray"))
    first.link.drop()
    first.until(WrapperExitedEvent)
    assert gone(pid, 1)
    assert not gone(old, 0)


def test_a_held_file_is_each_ones_own(first: SupervisorHarness, tmp_path: Path) -> None:
    kernel_of(first)
    first.held_file = str(tmp_path / "account" / "beside")
    first.start_beside(QUEUED, LONG)
    first.until(StartedEvent, lambda event: event.beside == 2)
    assert Path(first.held_file).exists()
    first.link.drop()
    first.until(WrapperExitedEvent)
    assert not Path(first.held_file).exists()


def test_a_kernel_that_dies_takes_no_request_beside_along_unsaid(first: SupervisorHarness) -> None:
    os.kill(kernel_of(first), signal.SIGKILL)
    first.start_beside(RUN_CHILD, LONG)
    assert first.until(KernelExitedEvent).status == -signal.SIGKILL
    assert first.until(GrantedEvent).number == 2
    first.stop()
    numbers = {first.until(WrapperExitedEvent).number for _ in range(2)}
    assert numbers == {1, 2}
