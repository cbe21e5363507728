"""What follows from each event of the supervisor, in each state: link, cells, debugger, exit status."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bitfusion_client.errors import WaitCancelled
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.processes.launcher import KERNEL_SPEAKS
from bitfusion_kernel.processes.messages import (
    Event,
    JoinedEvent,
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    StartedEvent,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.proxy import kernel_events
from bitfusion_kernel.proxy.cells.outage_display import OutageDisplay
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.kernel_events import KEPT_IS_LOST, KernelEvents
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.proxy.parts import LAUNCHED, WAIT, WIRE, Parts, cell, message

POSITION = "[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: place {} of 3; held by ada"


class FakeSupervisor:
    """Events are put in by the test."""

    def __init__(self) -> None:
        self.waiting: list[Event] = []
        self.closed = False
        self.kept = JoinedEvent()
        self.stopped = 0

    def stop(self) -> None:
        """Counted."""
        self.stopped += 1

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
        self.given_back = 0
        self.later: list[str] = []
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
            OutageDisplay(parts.publisher, parts.sent),
            parts.start_up,
            cast(Any, self),
            cast(Any, self),
            self.later.append,
            lambda _: None,
            on_working=lambda: None,
        )

    def on_wrapper_exited(self) -> None:
        """As what gives GPUs back."""
        self.given_back += 1

    wrapper_pid = None

    def on_granted(self, _: Event) -> None:
        """As what changes the size; the others likewise."""

    def on_started(self, pid: int) -> None:
        """Nobody asks for another size here."""

    def on_exited(self, _: Event) -> None:
        """Nobody asks for another size here."""

    def on_taken(self) -> None:
        """Nobody asks for another size here."""

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
        acquisition = self.wait()
        self.tell(LAUNCHED)
        connection, on_joined = self.parts.link.opened[-1]
        assert connection == "connection"
        on_joined()
        assert self.state is KernelState.RUNNING
        self.parts.submit(*cells)
        return acquisition

    def told(self, request: QueuedRequest) -> dict[str, Any]:
        """The only error that was shown in a cell."""
        (error,) = [
            published.content
            for published in self.parts.iopub.messages()
            if published.type == "error" and published.parent_header.get("msg_id") == request.message.id
        ]
        return error

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
    acquisition.on_line(POSITION.format(1), 0.0)
    served.parts.loop.fire("wait display")
    seen: list[list[str]] = []
    monkeypatch.setattr(
        served.parts.link, "start_relaying", lambda announced: seen.append(served.parts.published(waiting))
    )
    served.tell(LAUNCHED)
    served.parts.link.opened[0][1]()
    assert seen == [["busy", "display_data", "clear_output"]]


def test_the_kernel_does_not_say_again_that_the_cell_is_busy_that_waited(served: Served) -> None:
    waiting = cell()
    served.wait(waiting, cell())
    served.tell(LAUNCHED)
    served.parts.link.opened[0][1]()
    assert served.parts.link.announced == waiting.message.id


def test_a_new_queue_position_refreshes_the_display(served: Served, monkeypatch: Any) -> None:
    served.wait(cell())
    refreshed: list[int] = []
    monkeypatch.setattr(served.parts.display, "refresh", lambda: refreshed.append(1))
    for position in (2, 2, 1):
        served.tell(OutputEvent("stdout", POSITION.format(position)))
    served.tell(OutputEvent("stdout", "something else"))
    assert len(refreshed) == 2


def test_a_new_reason_refreshes_the_display_where_nobody_knows_a_position(
    served: Served, monkeypatch: Any
) -> None:
    served.wait(cell())
    refreshed: list[int] = []
    monkeypatch.setattr(served.parts.display, "refresh", lambda: refreshed.append(1))
    for why in ("no GPU is free", "no GPU is free", "pulling the image"):
        served.tell(
            OutputEvent("stdout", POSITION.format(1).replace("place 1 of 3; held by ada", f"why: {why}"))
        )
    assert len(refreshed) == 2


def test_what_the_kernel_writes_past_ipython_goes_to_jupyters_log(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(kernel_events, "write_line", logged.append)
    served.tell(OutputEvent("stderr", "before anything was asked for"))
    served.wait()
    served.tell(OutputEvent("stderr", "the client's"), OutputEvent("stderr", KERNEL_SPEAKS))
    served.tell(OutputEvent("stdout", "the client's"), OutputEvent("stderr", "no encodings"))
    assert logged == ["no encodings"]
    logged.clear()
    served.tell(LAUNCHED)
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


def test_a_lease_that_a_restart_kept_and_that_is_lost_before_its_kernel_came_fails_no_cell(
    served: Served,
) -> None:
    """A pod that is gone with its node, for example: who waits asks for another one, once."""
    kept = Acquisition(0, GpuRequest(), 0.0)
    kept.held_since = 1.0
    served.parts.lifecycle.go_on(kept, wanted=True)
    waiting = cell()
    served.parts.submit(waiting)
    served.tell(OutputEvent("stderr", "Released GPUs on 1 servers"), WrapperExitedEvent(0, 1))
    assert served.state is KernelState.WAITING
    (again,) = served.parts.started
    assert served.later == [KEPT_IS_LOST]
    served.tell(
        OutputEvent("stderr", "Error: not enough GPUs available: 0 of 1"),
        WrapperExitedEvent(again.number, 1),
    )
    assert served.parts.status_of(waiting) == "error"
    assert len(served.parts.started) == 1


def _fails_in_its_start(served: Served, *cells: QueuedRequest) -> None:
    served.parts.start_up.lasts = True
    served.wait(*cells)
    served.tell(
        OutputEvent("stderr", "Error: timed out after 5s waiting for 1 GPUs"), WrapperExitedEvent(1, 1)
    )
    assert not served.parts.start_up.lasts


def test_a_start_that_ends_without_a_gpu_fails_the_first_cell_which_waits_no_second_time(
    served: Served,
) -> None:
    _fails_in_its_start(served)
    first, second = cell(), cell()
    served.parts.submit(first)
    served.parts.loop.fire(f"fail {first.message.id}")
    assert served.parts.status_of(first) == "error"
    assert served.parts.shell.messages()[0].content["ename"] == "WaitTimedOut"
    assert len(served.parts.started) == 1
    served.parts.submit(second)
    assert len(served.parts.started) == 2, "who runs it again waits again"


def test_a_start_whose_wait_a_cell_showed_fails_that_cell_and_no_other(served: Served) -> None:
    first, second = cell(), cell()
    _fails_in_its_start(served, first)
    assert served.parts.status_of(first) == "error"
    served.parts.submit(second)
    assert len(served.parts.started) == 2


def test_a_wait_at_start_that_holds_up_nobody_is_begun_again_by_the_first_cell(served: Served) -> None:
    served.wait()
    served.tell(WrapperExitedEvent(1, 1))
    served.parts.submit(cell())
    assert len(served.parts.started) == 2


def test_a_kernel_that_answers_is_ready(served: Served) -> None:
    served.parts.start_up.lasts = True
    served.run()
    assert not served.parts.start_up.lasts


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
    assert not served.parts.published(running)
    served.tell(OutputEvent("stderr", "Killed"), WrapperExitedEvent(1, 137))
    assert served.told(running)["traceback"][1].endswith("; its last output: Killed")
    assert not served.parts.published(behind)
    assert not served.parts.shell.sent, "a reply would be one of a kernel that lives"
    assert served.parts.lifecycle.exit_status == 1


def test_a_kernel_whose_wrapper_does_not_end_is_told_after_a_moment(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(KernelExitedEvent(3))
    served.parts.loop.fire("kernel lost")
    assert served.told(running)["ename"] == "KernelDied"
    assert served.parts.lifecycle.exit_status == 1
    served.tell(WrapperExitedEvent(1, 3))
    assert served.parts.published(running) == ["error"], "told once"


def test_what_the_kernel_had_answered_is_relayed_before_its_death_is_told(served: Served) -> None:
    done, running = cell(), cell()
    served.run(done, running)
    content, header = {"status": "ok", "execution_count": 1}, done.message.header
    reply = WIRE.build("execute_reply", content, parent=header, identities=[b"client"])
    served.parts.link.last_shell = [reply]
    served.parts.link.last_control = [[b"client", b"x"]]
    served.tell(KernelExitedEvent(-11), WrapperExitedEvent(1, 139))
    assert served.parts.shell.sent == [reply]
    assert (served.parts.published(done), served.parts.published(running)) == ([], ["error"])
    assert served.parts.control.sent == [[b"client", b"x"]]


@pytest.mark.parametrize("status", [0, -9])
def test_an_end_that_was_asked_for_is_no_death(served: Served, status: int) -> None:
    running = cell()
    served.run(running)
    served.parts.lifecycle.relay_shutdown()
    served.tell(KernelExitedEvent(status), WrapperExitedEvent(1, 0))
    assert served.parts.lifecycle.exit_status == 0
    assert not served.parts.published(running)


def test_a_kernel_that_a_cell_ends_with_0_is_told_and_ends_the_proxy_with_0(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(KernelExitedEvent(0), WrapperExitedEvent(1, 0))
    assert served.told(running)["traceback"][1] == "Answer: the kernel process ended with exit code 0"
    assert served.parts.lifecycle.exit_status == 0


@pytest.mark.parametrize("ran_out", [True, False, None])
def test_memory_that_ran_out_under_the_kernel_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch, ran_out: bool | None
) -> None:
    class Kills:
        def __init__(self, pid: int) -> None:
            assert pid == LAUNCHED.kernel_pid

        def happened(self) -> bool | None:
            return ran_out

    monkeypatch.setattr("bitfusion_client.pod.oom_kills.OomKills", Kills)
    running = cell()
    acquisition = served.run(running)
    served.tell(KernelExitedEvent(-9), WrapperExitedEvent(1, 137))
    assert acquisition.memory_ran_out is ran_out
    assert ("because memory ran out" in served.told(running)["traceback"][1]) is bool(ran_out)


@pytest.mark.parametrize(
    ("oom_kills", "words"),
    [
        (2, "was killed by SIGKILL, because memory ran out"),
        (0, "was killed by SIGKILL"),
        (-1, "was killed by SIGKILL, as happens when memory runs out"),
    ],
)
def test_of_a_kernel_elsewhere_its_launcher_says_whether_memory_ran_out(
    served: Served, oom_kills: int, words: str
) -> None:
    running = cell()
    acquisition = served.run(running)
    acquisition.kernel_pid, served.events._oom_kills = None, None
    served.tell(KernelExitedEvent(-9, oom_kills=oom_kills), WrapperExitedEvent(1, 137))
    assert served.told(running)["traceback"][1] == f"Answer: the kernel process {words}"


def test_a_wrapper_that_is_killed_under_a_kernel_is_told(served: Served) -> None:
    running = cell()
    served.run(running)
    served.tell(WrapperExitedEvent(1, -9))
    assert served.told(running)["ename"] == "WrapperDied"
    assert served.parts.lifecycle.exit_status == 1


# -- the supervisor's death ------------------------------------------------------------------------


@pytest.fixture
def orphans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, ...]]:
    ended: list[tuple[int | None, ...]] = []
    monkeypatch.setattr(
        "bitfusion_kernel.processes.reaper.end_orphan", lambda *pids, granted: ended.append((*pids, granted))
    )
    return ended


@pytest.mark.parametrize("runs", [False, True])
def test_the_supervisors_death_is_told_and_ends_what_it_kept(
    served: Served, orphans: list[tuple[int | None, ...]], runs: bool
) -> None:
    request = cell()
    if runs:
        served.run(request)
    else:
        served.wait(request)
        served.debugger()
    served.die()
    assert served.told(request)["ename"] == "WrapperDied"
    assert not served.parts.shell.sent
    assert len(served.parts.control.sent) == (0 if runs else 1)
    known = (LAUNCHED.kernel_pid, LAUNCHED.launcher_pid) if runs else (None, None)
    assert orphans == [(4321, *known, runs)]
    assert served.parts.lifecycle.exit_status == 1


def test_a_supervisor_that_dies_with_nothing_to_keep_ends_the_proxy(
    served: Served, orphans: list[tuple[int | None, ...]]
) -> None:
    served.die()
    assert not orphans
    assert served.parts.lifecycle.exit_status == 1


def test_a_wrapper_that_has_ended_is_no_orphan(served: Served, orphans: list[tuple[int | None, ...]]) -> None:
    served.wait()
    served.tell(WrapperExitedEvent(1, 1))
    served.die()
    assert not orphans


def test_why_an_attempt_was_cancelled_is_not_replaced_by_how_its_wrapper_ended(served: Served) -> None:
    acquire = cell(commands=[WAIT])
    served.wait(acquire)
    served.control.interrupt()
    served.parts.loop.fire("interrupt")
    served.tell(LaunchedEvent(1, 2, {}), WrapperExitedEvent(1, -15))
    served.parts.let_fail(acquire)
    assert served.parts.shell.messages()[0].content["ename"] == WaitCancelled.__name__
    assert GpuRequest().describe() in served.parts.shell.messages()[0].content["traceback"][1]
