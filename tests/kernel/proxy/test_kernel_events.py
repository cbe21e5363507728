"""What follows from each event of the supervisor, in each state: link, cells, debugger, exit status."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bitfusion_client.errors import WaitCancelled
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.processes.messages import (
    Event,
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    StartedEvent,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.proxy import kernel_events
from bitfusion_kernel.proxy.kernel_events import KernelEvents
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.proxy.parts import LAUNCHED, WIRE, Parts, cell, message

POSITION = "[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: place {} of 3, ahead: ada"


class FakeSupervisor:
    """Events are put in by the test."""

    def __init__(self) -> None:
        self.waiting: list[Event] = []
        self.closed = False

    def events(self) -> list[Event]:
        """All at once."""
        events, self.waiting = self.waiting, []
        return events

    def fileno(self) -> int:
        """For the loop."""
        return 1000


class Served:
    """All parts, with the supervisor's events served."""

    def __init__(self) -> None:
        self.parts = parts = Parts()
        self.supervisor = FakeSupervisor()
        self.control = parts.make_control()
        self.control.watch()
        self.shell = parts.make_shell()
        self.shell.watch()
        self.events = KernelEvents(
            parts.loop,
            cast(Any, self.supervisor),
            parts.lifecycle,
            cast(Any, parts.link),
            self.shell,
            self.control,
            parts.scheduler,
            parts.display,
        )

    def tell(self, *events: Event) -> None:
        """The supervisor reports."""
        self.supervisor.waiting += events
        self.events.on_readable()

    def die(self) -> None:
        """The supervisor is killed."""
        self.supervisor.closed = True
        self.events.on_readable()

    @property
    def state(self) -> KernelState:
        """The kernel's state."""
        return self.parts.lifecycle.state

    def wait(self, *cells: Any) -> Acquisition:
        """These cells wait for a GPU, and the wrapper runs."""
        self.parts.submit(*cells)
        self.parts.lifecycle.request()
        self.parts.started[-1].kernel_connection = cast(Any, "connection")
        self.tell(StartedEvent(4321))
        return self.parts.started[-1]

    def run(self, *cells: Any) -> Acquisition:
        """The kernel runs and has these cells."""
        acquisition = self.wait(*cells)
        self.tell(LAUNCHED)
        connection, on_joined = self.parts.link.opened[-1]
        assert connection == "connection"
        on_joined()
        assert self.state is KernelState.RUNNING
        return acquisition

    def debugger(self) -> Any:
        """A debugger is turned on; its request."""
        request = message("debug_request", command="initialize")
        self.parts.control.incoming.append(request.frames)
        self.parts.loop.handlers[self.parts.control]()
        return request


@pytest.fixture
def served() -> Served:
    return Served()


def test_a_kernel_that_has_been_launched_is_joined_and_gets_what_has_waited(served: Served) -> None:
    waiting = cell()
    served.wait(waiting)
    debug = served.debugger()
    served.tell(LAUNCHED)
    assert not served.parts.kernel
    _, on_joined = served.parts.link.opened[0]
    on_joined()
    assert served.state is KernelState.RUNNING
    assert served.parts.link.relaying
    assert served.parts.in_kernel() == [waiting.message.id]
    assert served.parts.link.control == [debug.frames]
    assert served.parts.display.cell is None


def test_the_display_is_cleared_before_output_is_relayed(served: Served, monkeypatch: Any) -> None:
    waiting = cell()
    acquisition = served.wait(waiting)
    acquisition.on_line(POSITION.format(1))
    served.parts.loop.fire("wait display")
    seen: list[list[str]] = []
    monkeypatch.setattr(
        served.parts.link, "start_relaying", lambda: seen.append(served.parts.published(waiting))
    )
    served.tell(LAUNCHED)
    served.parts.link.opened[0][1]()
    assert seen == [["busy", "display_data", "clear_output"]]


def test_a_new_queue_position_refreshes_the_display(served: Served, monkeypatch: Any) -> None:
    served.wait(cell())
    refreshed: list[int] = []
    monkeypatch.setattr(served.parts.display, "refresh", lambda: refreshed.append(1))
    for position in (2, 2, 1):
        served.tell(OutputEvent("stdout", POSITION.format(position)))
    served.tell(OutputEvent("stdout", "something else"))
    assert len(refreshed) == 2


def test_what_the_kernel_writes_past_ipython_goes_to_jupyters_log(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(kernel_events, "_pass_on_to_stderr", logged.append)
    served.tell(OutputEvent("stderr", "before anything was asked for"))
    served.run()
    served.tell(OutputEvent("stderr", "Segmentation fault"), OutputEvent("stdout", POSITION.format(1)))
    assert logged == ["Segmentation fault"]


def test_a_grant_in_the_moment_of_cancelling_is_not_joined(served: Served) -> None:
    served.wait(cell())
    served.control.interrupt()
    served.parts.loop.fire("interrupt")
    served.tell(LAUNCHED)
    assert served.state is KernelState.CANCELLING
    assert not served.parts.link.opened


# -- a wait that ends --------------------------------------------------------------------------------------


def test_a_wrapper_that_ends_before_the_kernel_answers_fails_the_wait(served: Served) -> None:
    waiting, behind = cell(), cell()
    served.wait(waiting, behind)
    debug = served.debugger()
    served.tell(OutputEvent("stderr", "Error: not enough GPUs available: 0 of 1"), WrapperExitedEvent(1, 1))
    assert served.state is KernelState.NOT_REQUESTED
    assert (served.parts.status_of(waiting), served.parts.status_of(behind)) == ("error", "aborted")
    assert served.parts.shell.messages()[0].content["ename"] == "NoGpusAvailable"
    reply = served.parts.control.messages()[-1]
    assert (reply.parent_header["msg_id"], reply.content["success"]) == (debug.id, False)
    assert served.parts.link.closed == 1


def test_a_kernel_that_dies_while_it_starts_fails_the_wait(served: Served) -> None:
    waiting = cell()
    served.wait(waiting)
    served.tell(LAUNCHED, KernelExitedEvent(1))
    assert "kernel lost" not in served.parts.loop.timers
    served.tell(WrapperExitedEvent(1, 1))
    assert served.state is KernelState.NOT_REQUESTED
    assert served.parts.shell.messages()[0].content["ename"] == "KernelDied"


def test_a_cancelled_wait_is_told_once_and_the_next_cell_asks_again(served: Served) -> None:
    first, second = cell(), cell()
    served.wait(first)
    served.control.interrupt()
    served.parts.loop.fire("interrupt")
    served.parts.submit(second)
    served.tell(WrapperExitedEvent(1, -15))
    assert served.parts.status_of(first) == "error"
    assert served.parts.status_of(second) is None
    assert served.state is KernelState.WAITING
    assert len(served.parts.started) == 2


def test_the_end_of_another_wrapper_is_passed_over(served: Served) -> None:
    served.wait(cell())
    served.tell(WrapperExitedEvent(7, 0), StoppedEvent())
    assert served.state is KernelState.WAITING


def test_events_without_a_wrapper_change_nothing(served: Served) -> None:
    served.tell(LAUNCHED, KernelExitedEvent(0), WrapperExitedEvent(1, 0), OutputEvent("stdout", "x"))
    assert served.state is KernelState.NOT_REQUESTED


# -- a kernel that ends --------------------------------------------------------------------------------------


def test_a_kernel_that_dies_is_told_when_its_wrapper_has_ended(served: Served) -> None:
    running, behind = cell(), cell()
    served.run(running, behind)
    served.tell(KernelExitedEvent(-9))
    assert served.parts.status_of(running) is None
    served.tell(OutputEvent("stderr", "Killed"), WrapperExitedEvent(1, 137))
    assert (served.parts.status_of(running), served.parts.status_of(behind)) == ("error", "aborted")
    traceback = served.parts.shell.messages()[0].content["traceback"]
    assert traceback[1] == "Answer: the kernel process was killed by SIGKILL; its last output: Killed"
    assert served.parts.lifecycle.exit_status == 1


def test_a_kernel_whose_wrapper_does_not_end_is_told_after_a_moment(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(KernelExitedEvent(3))
    served.parts.loop.fire("kernel lost")
    assert served.parts.status_of(running) == "error"
    assert served.parts.lifecycle.exit_status == 1
    served.tell(WrapperExitedEvent(1, 3))
    assert served.parts.status_of(running) == "error", "told once"


def test_what_the_kernel_had_answered_is_relayed_before_its_death_is_told(served: Served) -> None:
    done, running = cell(), cell()
    served.run(done, running)
    reply = WIRE.build("execute_reply", {"status": "ok", "execution_count": 1}, parent=done.message.header)
    served.parts.link.last_shell = [reply]
    served.parts.link.last_control = [[b"client", b"x"]]
    served.tell(KernelExitedEvent(-11), WrapperExitedEvent(1, 139))
    assert [served.parts.status_of(request) for request in (done, running)] == ["ok", "error"]
    assert served.parts.control.sent == [[b"client", b"x"]]


@pytest.mark.parametrize(("status", "shuts_down"), [(0, False), (0, True), (-9, True)])
def test_an_expected_end_is_no_failure(served: Served, status: int, shuts_down: bool) -> None:
    running = cell()
    served.run(running)
    if shuts_down:
        served.parts.lifecycle.relay_shutdown()
    served.tell(KernelExitedEvent(status), WrapperExitedEvent(1, 0))
    assert served.parts.lifecycle.exit_status == 0
    assert served.parts.status_of(running) is None


def test_a_wrapper_that_is_killed_under_a_kernel_is_told(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(WrapperExitedEvent(1, -9))
    assert served.parts.shell.messages()[0].content["ename"] == "WrapperDied"
    assert served.parts.lifecycle.exit_status == 1


# -- the supervisor's death ------------------------------------------------------------------------


@pytest.fixture
def orphans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    ended: list[tuple[int, int | None]] = []
    monkeypatch.setattr("bitfusion_kernel.processes.orphans.end_orphan", lambda *pids: ended.append(pids))
    return ended


@pytest.mark.parametrize("runs", [False, True])
def test_the_supervisors_death_is_told_and_ends_what_it_kept(
    served: Served, orphans: list[tuple[int, int | None]], runs: bool
) -> None:
    request = cell()
    if runs:
        served.run(request)
    else:
        served.wait(request)
        served.debugger()
    served.die()
    assert served.parts.shell.messages()[0].content["ename"] == "WrapperDied"
    assert len(served.parts.control.sent) == (0 if runs else 1)
    assert orphans == [(4321, LAUNCHED.kernel_pid if runs else None)]
    assert served.parts.lifecycle.exit_status == 1


def test_a_supervisor_that_dies_with_nothing_to_keep_ends_the_proxy(
    served: Served, orphans: list[tuple[int, int | None]]
) -> None:
    served.die()
    assert not orphans
    assert served.parts.lifecycle.exit_status == 1


def test_a_wrapper_that_has_ended_is_no_orphan(served: Served, orphans: list[tuple[int, int | None]]) -> None:
    served.wait()
    served.tell(WrapperExitedEvent(1, 1))
    served.die()
    assert not orphans


def test_why_an_attempt_was_cancelled_is_not_replaced_by_how_its_wrapper_ended(served: Served) -> None:
    acquire = cell(commands=["wait"])
    served.wait(acquire)
    served.control.interrupt()
    served.parts.loop.fire("interrupt")
    served.tell(LaunchedEvent(1, 2, {}), WrapperExitedEvent(1, -15))
    served.parts.loop.fire("fail soon")
    assert served.parts.shell.messages()[0].content["ename"] == WaitCancelled.__name__
    assert GpuRequest().describe() in served.parts.shell.messages()[0].content["traceback"][1]
