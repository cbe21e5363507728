"""Which cell runs next, where, and how cells end that never reach the kernel."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import ClientNotFound, KernelDied, WaitCancelled
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.proxy.cells.request_queue import MOST_HELPERS, QueuedRequest
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.proxy.parts import LAUNCHED, STAY, WAIT, Parts, cell, message

CANCELLED = WaitCancelled(GpuRequest(), "interrupted after 1 s of waiting")
DIED = KernelDied("", "the kernel process was killed by SIGKILL")


def _ids(*requests: QueuedRequest) -> list[str]:
    return [request.message.id for request in requests]


# -- the order of requests -----------------------------------------------------------------------------


def test_the_first_visible_cell_asks_for_one_gpu_and_the_others_wait_with_it() -> None:
    parts = Parts()
    comm = QueuedRequest(message("comm_open"), 0.0)
    silent, first, second = cell(silent=True), cell(), cell()
    parts.submit(comm, silent)
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED
    parts.submit(first, second)
    assert len(parts.started) == 1
    assert parts.display.cell is first
    parts.connect()
    assert parts.in_kernel() == _ids(comm, silent, first, second)


def test_a_full_inbox_stops_the_queue_and_loses_nothing() -> None:
    parts = Parts()
    parts.connect()
    cells = [cell(str(number)) for number in range(5)]
    parts.kernel_takes = 2
    parts.submit(*cells)
    assert parts.in_kernel() == _ids(*cells[:2])
    assert not parts.scheduler.relay(cell().message.frames), "one that came later must not overtake"
    parts.kernel_takes = 10
    parts.scheduler.advance()
    assert parts.in_kernel() == _ids(*cells)


def test_relaying_is_refused_while_a_command_cell_runs() -> None:
    parts = Parts()
    parts.connect()
    assert parts.scheduler.relay(cell().message.frames)
    parts.submit(cell(commands=[STAY]))
    assert not parts.scheduler.relay(cell().message.frames)
    parts.command_cells[0].finish()
    assert parts.scheduler.relay(cell().message.frames)


def test_a_command_cell_runs_when_the_cells_before_it_are_done() -> None:
    parts = Parts()
    parts.connect()
    before, commands, after = cell(), cell(commands=["status"]), cell()
    parts.submit(before, commands, after)
    assert parts.in_kernel() == _ids(before)
    assert parts.status_of(commands) is None
    parts.kernel_replies(before, execution_count=3)
    assert parts.status_of(commands) == "ok"
    assert parts.in_kernel() == _ids(before, after)


def test_a_command_cell_repeats_the_last_execution_count() -> None:
    parts = Parts()
    first, second = cell(commands=["status"]), cell(commands=["status"])
    parts.submit(first)
    assert parts.shell.messages()[-1].content["execution_count"] == 1
    parts.connect()
    ran = cell()
    parts.submit(ran)
    parts.kernel_replies(ran, execution_count=7)
    parts.submit(second)
    assert parts.shell.messages()[-1].content["execution_count"] == 7


def test_many_command_cells_in_one_go_run_one_after_the_other() -> None:
    parts = Parts()
    for _ in range(3000):
        parts.scheduler.append(cell(commands=["status"]))
    parts.scheduler.advance()
    assert len(parts.shell.sent) == 3000


def test_a_command_cell_before_the_kernel_needs_none() -> None:
    parts = Parts()
    waiting, commands = cell(), cell(commands=["status"])
    parts.submit(waiting)
    parts.submit(commands)
    assert parts.status_of(commands) is None, "cells run in order"
    parts.connect()
    parts.kernel_replies(waiting)
    assert parts.status_of(commands) == "ok"


# -- %bitfusion behind a cell that waits ----------------------------------------------------------------


def _later(request: QueuedRequest, than: QueuedRequest, seconds: float = 1.0) -> QueuedRequest:
    """Sent and arrived so many seconds later."""
    request.arrived_at = than.arrived_at + seconds
    sent = datetime.fromisoformat(than.message.header["date"].replace("Z", "+00:00"))
    request.message.header["date"] = (sent + timedelta(seconds=seconds)).isoformat()
    return request


@pytest.mark.parametrize(
    "line", ["", "status", "pool", "list_gpus", "health", "log", "help", "pool  # now", "request -n 2"]
)
def test_a_question_behind_a_cell_that_waits_is_answered_at_once(line: str) -> None:
    parts = Parts()
    waiting = cell()
    question = _later(cell(commands=[line]), waiting)
    parts.submit(waiting, question)
    assert parts.status_of(question) == "ok"
    assert parts.display.cell is waiting
    parts.connect()
    assert parts.in_kernel() == _ids(waiting)


@pytest.mark.parametrize(
    "lines", [["acquire"], ["request -n 2", "acquire"], ["status", "acquire"], ["nonsense"]]
)
def test_a_command_that_changes_something_keeps_its_turn(lines: list[str]) -> None:
    parts = Parts()
    waiting = cell()
    command = _later(cell(commands=lines), waiting)
    parts.submit(waiting, command)
    assert parts.status_of(command) is None


def test_run_all_keeps_its_order_behind_a_cell_that_waits() -> None:
    parts = Parts()
    waiting = cell()
    second = _later(cell(), waiting)
    question = _later(cell(commands=["status"]), second, 0.2)
    parts.submit(waiting, second, question)
    assert parts.status_of(question) is None
    asked_again = _later(cell(commands=["status"]), question)
    parts.submit(asked_again)
    assert (parts.status_of(question), parts.status_of(asked_again)) == (None, "ok")


def test_run_all_keeps_its_order_where_its_cells_are_read_late() -> None:
    parts = Parts()
    waiting = cell()
    question = _later(cell(commands=["status"]), waiting, 0.01)
    question.arrived_at += 2  # the proxy was busy with the first one
    parts.submit(waiting, question)
    assert parts.status_of(question) is None


def test_what_is_read_at_once_was_not_sent_in_one_go() -> None:
    parts = Parts()
    waiting = cell()
    question = _later(cell(commands=["status"]), waiting)
    question.arrived_at = waiting.arrived_at
    parts.submit(waiting, question)
    assert parts.status_of(question) == "ok"


@pytest.mark.parametrize("header", [{"session": "another client, another clock"}, {"date": None}])
@pytest.mark.parametrize(("seconds", "status"), [(0.2, None), (1.0, "ok")])
def test_cells_of_two_clients_or_without_a_date_are_told_apart_by_their_arrival(
    header: dict[str, str | None], seconds: float, status: str | None
) -> None:
    parts = Parts()
    waiting = cell()
    question = _later(cell(commands=["status"]), waiting, seconds)
    question.message.header |= {"date": "2001-01-01T00:00:00Z"} | header
    parts.submit(waiting, question)
    assert parts.status_of(question) == status


def test_behind_a_cell_that_runs_a_question_keeps_its_turn() -> None:
    parts = Parts()
    parts.connect()
    running = cell()
    question = _later(cell(commands=["status"]), running)
    parts.submit(running, question)
    assert parts.status_of(question) is None


def test_the_wait_is_over_while_a_question_is_answered() -> None:
    parts = Parts()
    waiting = cell()
    first = _later(cell(commands=[STAY]), waiting)  # a client that takes its time
    parts.submit(waiting, first)
    second = _later(cell(commands=["status"]), first)
    parts.submit(second)
    assert parts.status_of(second) is None, "one after the other"
    parts.connect()
    assert parts.in_kernel() == []
    parts.command_cells[0].finish()
    assert parts.in_kernel() == _ids(waiting)
    parts.kernel_replies(waiting)
    assert parts.status_of(second) == "ok"


def test_questions_of_two_shells_do_not_mix() -> None:
    parts = Parts()
    waiting, other = cell(), cell()
    other.message.header["subshell_id"] = "b"
    parts.submit(waiting, other)
    for number, before in enumerate((waiting, other, waiting, other)):
        question = _later(cell(commands=["status"] if number < 2 else ["log"]), before, number + 1.0)
        question.message.header["subshell_id"] = before.subshell
        parts.submit(question)
        assert parts.status_of(question) == "ok"
    assert parts.display.cell is waiting


def test_a_question_that_fails_leaves_the_cell_that_waits_alone() -> None:
    parts = Parts()
    waiting = cell()
    question = _later(cell(commands=[STAY]), waiting)
    behind = _later(cell(), question)
    parts.submit(waiting, question, behind)
    parts.command_cells[0].fail(CANCELLED)
    parts.let_fail(question)
    assert [parts.status_of(each) for each in (question, behind, waiting)] == ["error", "aborted", None]
    assert parts.display.cell is waiting


def test_a_question_that_fails_takes_nothing_from_a_cell_that_fails_at_the_same_time() -> None:
    parts = Parts()
    parts.start_error = ClientNotFound(("/no/such",))
    refused = cell()
    question = _later(cell(commands=[STAY]), refused)
    parts.submit(refused, question)
    parts.command_cells[0].fail(CANCELLED)
    parts.let_fail(question)
    parts.let_fail(refused)
    assert (parts.status_of(refused), parts.status_of(question)) == ("error", "error")


@pytest.mark.parametrize("line", ["status", "pool", "log", "help"])
def test_a_question_behind_an_acquire_cell_that_waits_is_answered_at_once(line: str) -> None:
    parts = Parts()
    acquire = cell(commands=[WAIT])
    behind = _later(cell(), acquire)
    question = _later(cell(commands=[line]), behind)
    parts.submit(acquire, _later(cell(commands=["status"]), acquire), behind, question)
    assert parts.status_of(question) == "ok"
    assert (parts.status_of(acquire), parts.display.cell) == (None, acquire)
    assert parts.display.waited is not None


def test_a_question_that_came_together_with_an_acquire_cell_keeps_its_turn() -> None:
    parts = Parts()
    acquire = cell(commands=[WAIT])
    question = _later(cell(commands=["status"]), acquire, 0.2)
    parts.submit(acquire, question)
    assert parts.status_of(question) is None
    parts.connect()
    parts.command_cells[0].finish()
    assert parts.status_of(question) == "ok"


def test_a_question_waits_for_a_command_cell_until_that_only_waits_for_a_gpu() -> None:
    parts = Parts()
    pool_then_acquire = cell(commands=[STAY])
    question = _later(cell(commands=["status"]), pool_then_acquire)
    parts.submit(pool_then_acquire, question)
    assert parts.status_of(question) is None
    pool_then_acquire.commands = [WAIT]
    parts.command_cells[0].proceed()
    parts.scheduler.advance()
    assert parts.status_of(question) == "ok"


def test_the_gpu_comes_while_a_question_behind_an_acquire_cell_is_answered() -> None:
    parts = Parts()
    acquire = cell(commands=[WAIT])
    first = _later(cell(commands=[STAY]), acquire)
    second = _later(cell(commands=["status"]), first)
    parts.submit(acquire, first, second)
    assert parts.status_of(second) is None, "questions are answered one after the other"
    parts.connect()
    waiting, answering = parts.command_cells
    waiting.finish()
    assert (parts.status_of(acquire), parts.status_of(second)) == ("ok", None)
    answering.finish()
    assert (parts.status_of(first), parts.status_of(second)) == ("ok", "ok")


def test_a_question_that_fails_leaves_the_acquire_cell_that_waits_alone() -> None:
    parts = Parts()
    acquire = cell(commands=[WAIT])
    question = _later(cell(commands=[STAY]), acquire)
    parts.submit(acquire, question)
    parts.command_cells[1].fail(CANCELLED)
    parts.let_fail(question)
    assert (parts.status_of(question), parts.status_of(acquire)) == ("error", None)
    assert parts.display.cell is acquire
    parts.scheduler.fail_wait(CANCELLED)
    parts.let_fail(acquire)
    assert parts.status_of(acquire) == "error"


# -- busy ------------------------------------------------------------------------------------------------


def test_a_cell_is_busy_before_a_gpu_is_asked_for() -> None:
    """`jupyter console` shows nothing of a cell that is not busy within 50 ms; asking may take longer."""
    parts = Parts()
    waiting = cell()
    parts.on_start = lambda: seen.extend(parts.published(waiting))
    seen: list[str] = []
    parts.submit(waiting)
    assert seen == ["busy"]
    parts.submit(cell())
    assert parts.published(waiting) == ["busy"], "once"


def test_only_the_cell_that_waited_is_known_to_be_busy_before_the_kernel_says_so() -> None:
    parts = Parts()
    assert parts.scheduler.announced_cell is None
    silent, waiting, behind = cell(silent=True), cell(), cell()
    parts.submit(silent, waiting, behind)
    parts.loop.timers["silent"] = (0.0, parts.loop.timers["silent"][1])
    silent.arrived_at -= 1000
    parts.loop.fire("silent")
    assert parts.published(silent) == ["busy", "idle"]
    assert parts.scheduler.announced_cell == waiting.message.id
    parts.connect()
    assert parts.scheduler.announced_cell is None


# -- a wait that ends without a kernel -------------------------------------------------------------------


def test_a_failed_wait_is_an_error_of_its_cell_and_aborts_those_behind() -> None:
    parts = Parts()
    first, silent, second, arriving = cell(), cell(silent=True), cell(), cell()
    parts.submit(first, silent, second)
    parts.arriving.append(arriving)
    parts.scheduler.fail_wait(CANCELLED)
    assert [parts.status_of(c) for c in (first, second, arriving)] == ["error", "aborted", "aborted"]
    assert parts.status_of(silent) is None
    assert parts.published(first) == ["busy", "error", "idle"]
    assert parts.published(second) == ["busy", "idle"]
    assert parts.display.cell is None


def test_without_stop_on_error_the_cells_behind_stay_queued() -> None:
    parts = Parts()
    first, second = cell(stop_on_error=False), cell()
    parts.submit(first, second)
    parts.scheduler.fail_wait(CANCELLED)
    parts.lifecycle.wrapper_exited(1)
    parts.scheduler.on_wait_over()
    assert (parts.status_of(first), parts.status_of(second)) == ("error", None)
    assert len(parts.started) == 2
    assert parts.display.cell is second


def test_a_failed_wait_without_a_cell_fails_nothing() -> None:
    parts = Parts()
    parts.lifecycle.request()
    parts.scheduler.fail_wait(CANCELLED)
    assert not parts.shell.sent


def test_a_cell_after_a_cancelled_wait_asks_again_once_the_wrapper_has_ended() -> None:
    parts = Parts()
    first, second = cell(), cell()
    parts.submit(first)
    parts.lifecycle.cancel()
    parts.scheduler.fail_wait(CANCELLED)
    parts.submit(second)
    assert len(parts.started) == 1
    parts.lifecycle.wrapper_exited(-15)
    parts.scheduler.on_wait_over()
    assert len(parts.started) == 2
    assert parts.display.cell is second


def test_a_gpu_that_cannot_be_asked_for_fails_the_cell_and_those_sent_with_it() -> None:
    parts = Parts()
    parts.start_error = ClientNotFound(("/no/such",))
    first, second = cell(), cell()
    parts.submit(first, second)
    assert parts.status_of(first) is None, "the cells that were sent with it must have arrived"
    parts.let_fail(first)
    assert (parts.status_of(first), parts.status_of(second)) == ("error", "aborted")
    parts.start_error = None
    parts.submit(cell())
    assert len(parts.started) == 1


def test_a_cell_that_may_not_acquire_fails_but_joins_a_wait_that_exists() -> None:
    parts = Parts()
    parts.policy.error = CANCELLED
    refused = cell()
    parts.submit(refused)
    parts.let_fail(refused)
    assert parts.status_of(refused) == "error"
    assert not parts.started
    parts.lifecycle.request(told_to=True)
    joins = cell()
    parts.submit(joins)
    assert parts.display.cell is joins


# -- command cells that wait -----------------------------------------------------------------------------


def test_a_command_cell_that_waits_for_the_gpu_hears_how_it_ends() -> None:
    parts = Parts()
    acquire = cell(commands=[WAIT])
    parts.submit(acquire, cell())
    assert len(parts.started) == 1
    assert parts.commands.run_in(None)
    assert parts.display.waited is not None
    parts.connect()
    assert parts.command_cells[0].told == ["connected"]
    parts.command_cells[0].finish()
    assert parts.display.cell is None
    assert len(parts.kernel) == 1


def test_a_command_cell_whose_wait_fails_ends_in_words_and_frees_the_queue() -> None:
    parts = Parts()
    acquire, behind = cell(commands=[WAIT]), cell()
    parts.submit(acquire, behind)
    parts.scheduler.fail_wait(CANCELLED)
    assert parts.status_of(acquire) is None
    parts.let_fail(acquire)
    assert (parts.status_of(acquire), parts.status_of(behind)) == ("error", "aborted")
    assert not parts.commands.run_in(None)


def test_an_interrupt_goes_to_the_command_cell_that_runs() -> None:
    parts = Parts()
    assert not parts.commands.interrupt()
    parts.submit(cell(commands=[STAY]))
    assert parts.commands.interrupt()
    assert parts.command_cells[0].told == ["interrupt"]


# -- the kernel's answers and its death --------------------------------------------------------------------


@pytest.mark.parametrize(("stops", "left"), [(True, "aborted"), (False, None)])
def test_an_error_in_the_kernel_aborts_what_waits_here(stops: bool, left: str | None) -> None:
    parts = Parts()
    parts.connect()
    failing = cell(stop_on_error=stops)
    parts.submit(failing, cell(commands=[STAY]))
    queued = cell()
    parts.submit(queued)
    frames = {"status": "error", "execution_count": 1}
    parts.kernel_replies(failing, **frames)
    assert parts.status_of(queued) == left


def test_when_the_kernel_dies_the_first_visible_cell_says_why_and_nothing_is_replied() -> None:
    parts = Parts()
    parts.connect()
    silent, running, behind, commands = cell(silent=True), cell(), cell(), cell(commands=["status"])
    parts.submit(silent, running, behind, commands)
    parts.scheduler.show_death(DIED)
    assert not parts.shell.sent
    assert [parts.published(each) for each in (silent, running, behind, commands)] == [[], ["error"], [], []]


def test_a_command_cell_that_runs_beside_an_idle_kernel_says_why_it_died() -> None:
    parts = Parts()
    parts.connect()
    commands = cell(commands=[STAY])
    parts.submit(commands)
    parts.scheduler.show_death(DIED)
    assert parts.published(commands) == ["busy", "error"]
    assert not parts.shell.sent


def test_a_death_while_nothing_runs_is_shown_nowhere() -> None:
    parts = Parts()
    parts.connect()
    parts.submit(cell(silent=True))
    parts.scheduler.show_death(DIED)
    assert not parts.iopub.sent


# -- silent cells ------------------------------------------------------------------------------------------


def test_a_silent_cell_is_answered_after_its_time_and_still_runs() -> None:
    parts = Parts()
    parts.policy.silent_wait = 0.0
    silent = cell(silent=True)
    parts.submit(silent)
    parts.loop.fire("silent")
    assert parts.status_of(silent) == "ok"
    assert parts.published(silent) == ["busy", "idle"]
    assert "silent" not in parts.loop.timers
    parts.connect()
    assert parts.in_kernel() == _ids(silent)
    reply = message("execute_reply", status="ok")
    reply.parent_header["msg_id"] = silent.message.id
    assert parts.sent.some_answered_early
    assert parts.sent.take_answered_early(str(reply.parent_header["msg_id"]))
    assert not parts.sent.some_answered_early


def test_silent_cells_are_answered_each_in_its_time() -> None:
    parts = Parts()
    early, late = cell(silent=True), cell(silent=True)
    early.arrived_at = time.monotonic() - parts.policy.silent_wait
    late.arrived_at = time.monotonic() + 1000
    parts.submit(early, late)
    parts.loop.fire("silent")
    assert (parts.status_of(early), parts.status_of(late)) == ("ok", None)
    due, _ = parts.loop.timers["silent"]
    assert due == late.arrived_at + parts.policy.silent_wait


def test_a_silent_cell_for_a_kernel_that_runs_needs_no_timer() -> None:
    parts = Parts()
    parts.submit(cell(silent=True))
    parts.connect()
    assert "silent" not in parts.loop.timers
    parts.submit(cell(silent=True))
    assert "silent" not in parts.loop.timers
    assert len(parts.kernel) == 2


# -- whatever happens ----------------------------------------------------------------------------------------

KINDS = {
    "cell": lambda: cell(),
    "goes on": lambda: cell(stop_on_error=False),
    "silent": lambda: cell(silent=True),
    "commands": lambda: cell(commands=["status"]),
    "comm": lambda: QueuedRequest(message("comm_msg"), 0.0),
}
EVENTS = [*KINDS, "granted", "connected", "refused", "room", "kernel answers"]


@given(st.lists(st.sampled_from(EVENTS), max_size=25), st.integers(0, 3))
def test_every_request_goes_to_the_kernel_in_order_or_is_answered_once(events: list[str], room: int) -> None:
    parts = Parts()
    parts.kernel_takes = room
    sent: list[QueuedRequest] = []
    for event in events:
        state = parts.lifecycle.state
        if event in KINDS:
            sent.append(KINDS[event]())
            parts.submit(sent[-1])
        elif event == "granted" and state is KernelState.WAITING:
            parts.lifecycle.launched(LAUNCHED, 0.0)
        elif event == "connected" and state is KernelState.STARTING:
            parts.lifecycle.kernel_connected()
            parts.scheduler.on_kernel_connected()
        elif event == "refused" and state in (KernelState.WAITING, KernelState.STARTING):
            parts.lifecycle.wrapper_exited(1)
            parts.scheduler.fail_wait(CANCELLED)
            parts.scheduler.on_wait_over()
        elif event == "room":
            parts.kernel_takes += 2
            parts.scheduler.advance()
        elif event == "kernel answers" and parts.lifecycle.connected:
            for request in sent:
                if request.is_execute and request.message.id in parts.in_kernel():
                    parts.kernel_replies(request)
    reached = parts.in_kernel()
    assert reached == [request.message.id for request in sent if request.message.id in set(reached)]
    for request in sent:
        assert request.message.id not in reached or parts.status_of(request) is None
    if parts.lifecycle.connected:
        parts.kernel_takes = 1000
        for _ in range(len(sent) + 1):
            for request in sent:
                if request.is_execute:
                    parts.kernel_replies(request)
        left = [r for r in sent if r.message.id not in parts.in_kernel() and parts.status_of(r) is None]
        assert not left


def test_an_extensions_code_takes_no_gpu_and_is_answered_as_silent_code_is() -> None:
    """A variable inspector asks not silently, but outside the history, as soon as a notebook is open."""
    parts, helper = Parts(), cell(store_history=False, allow_stdin=True)
    parts.submit(helper)
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED
    helper.arrived_at -= 1000
    parts.loop.fire("silent")
    assert parts.published(helper) == ["busy", "idle"]
    assert parts.status_of(helper) == "ok"
    parts.submit(waiting := cell())
    parts.replies.abort_behind(helper)
    assert parts.status_of(helper) == "ok", "it has been answered"
    parts.connect()
    assert parts.in_kernel() == _ids(helper, waiting)[:1]


def test_a_command_that_an_extension_sends_is_answered_once() -> None:
    parts = Parts()
    first, second = (cell(commands=[STAY], store_history=False) for _ in range(2))
    parts.submit(first, second)
    second.arrived_at -= 1000
    if "silent" in parts.loop.timers:
        parts.loop.fire("silent")
    assert parts.status_of(second) is None


def test_what_finds_no_room_in_the_queue_is_aborted() -> None:
    parts = Parts()
    parts.submit(*(cell(silent=True) for _ in range(MOST_HELPERS)))
    parts.submit(late := cell(silent=True))
    assert parts.status_of(late) == "aborted"
    assert len(parts.queue) == MOST_HELPERS
