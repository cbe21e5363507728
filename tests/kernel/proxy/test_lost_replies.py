"""Cells to which the kernel never replies although it goes on: what is proven, asked and told."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_kernel.protocol.wire import read_unchecked
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from tests.kernel.proxy.parts import STAY, Parts, cell


def _relayed(parts: Parts, *, ago: float = 0.0, **content: Any) -> QueuedRequest:
    """A cell that the kernel has been sent at once."""
    request = cell(**content)
    request.arrived_at -= ago
    assert parts.scheduler.relay(request.message.frames)
    parts.sent.sent(request)
    return request


def _queued(parts: Parts) -> QueuedRequest:
    request = cell()
    parts.submit(request)
    return request


@pytest.fixture
def parts() -> Parts:
    connected = Parts()
    connected.connect()
    return connected


def test_a_later_reply_ends_the_cell_whose_reply_is_lost(parts: Parts) -> None:
    lost, later, running = (_relayed(parts) for _ in range(3))
    parts.kernel_replies(later)
    assert (parts.status_of(lost), parts.status_of(later), parts.status_of(running)) == ("error", None, None)
    assert parts.published(lost) == ["error", "idle"]
    assert parts.published(running) == ["busy"], (
        "the kernel still works, whatever JupyterLab takes from `idle`"
    )


def test_silent_code_whose_reply_is_lost_shows_nothing(parts: Parts) -> None:
    lost, later = _relayed(parts, silent=True), _relayed(parts)
    parts.kernel_replies(later)
    assert parts.status_of(lost) == "error"
    assert parts.published(lost) == ["idle"]


def test_a_command_cell_asks_once_and_runs_when_the_kernel_has_come_so_far(parts: Parts) -> None:
    lost = _relayed(parts)
    command, behind = cell(commands=["status"]), cell()
    parts.submit(command, behind)
    parts.scheduler.advance()
    assert len(parts.questions) == 1
    assert parts.status_of(command) is None
    parts.kernel_answers()
    assert (parts.status_of(lost), parts.status_of(command)) == ("error", "ok")
    assert parts.in_kernel()[-1] == behind.message.id


def test_a_command_cell_in_a_subshell_asks_there(parts: Parts) -> None:
    request = cell()
    request.message.header["subshell_id"] = "a"
    parts.submit(request)
    command = cell(commands=["status"])
    command.message.header["subshell_id"] = "a"
    parts.submit(command)
    assert [question.header["subshell_id"] for question in parts.questions] == ["a"]
    parts.kernel_answers()
    assert parts.status_of(command) == "ok"


def test_a_full_inbox_is_asked_when_it_has_room(parts: Parts) -> None:
    lost, command = _relayed(parts), cell(commands=["status"])
    parts.kernel_takes = 0
    parts.submit(command)
    assert not parts.questions
    parts.kernel_takes = 5
    parts.scheduler.advance()
    parts.kernel_answers()
    assert (parts.status_of(lost), parts.status_of(command)) == ("error", "ok")


def test_the_next_request_asks_about_a_cell_that_was_sent_long_ago(parts: Parts) -> None:
    """So the cell that runs is known when the kernel dies."""
    lost = _relayed(parts, ago=5)
    new = cell()
    assert not parts.scheduler.relay(new.message.frames), "the question must come first"
    parts.submit(new)
    sent = [read_unchecked(frames).id for frames in parts.kernel]
    assert sent == [lost.message.id, parts.questions[0].id, new.message.id]
    assert parts.scheduler.relay(cell().message.frames), "once"
    parts.kernel_answers()
    assert parts.sent.running() == [new]


def test_the_answer_about_a_cell_that_runs_on_changes_nothing(parts: Parts) -> None:
    running = _relayed(parts, ago=5)
    parts.submit(cell())
    parts.kernel_replies(running)
    parts.kernel_answers()
    assert parts.shell.sent == []


# -- interrupts ----------------------------------------------------------------------------------------


def test_the_kernel_is_asked_a_second_after_an_interrupt(parts: Parts) -> None:
    lost = _relayed(parts)
    parts.scheduler.on_interrupted()
    assert not parts.questions
    parts.loop.fire("after an interrupt")
    parts.kernel_answers()
    assert parts.status_of(lost) == "error"
    parts.loop.fire("after an interrupt")
    assert parts.status_of(lost) == "error"


def test_an_idle_kernel_is_not_asked_after_an_interrupt(parts: Parts) -> None:
    parts.scheduler.on_interrupted()
    assert not parts.loop.timers


def test_a_command_cell_behind_a_cell_that_takes_no_interrupt_waits_no_longer(parts: Parts) -> None:
    running = _relayed(parts)
    command, behind = cell(commands=["status"]), cell()
    parts.submit(command, behind)
    parts.scheduler.on_interrupted()
    parts.loop.fire("after an interrupt")
    assert parts.status_of(command) is None
    parts.loop.fire("after an interrupt")
    assert [parts.status_of(each) for each in (running, command, behind)] == [None, "aborted", "aborted"]
    assert parts.scheduler.relay(cell().message.frames)


def test_a_command_cell_whose_turn_has_come_meanwhile_is_left_alone(parts: Parts) -> None:
    running, command = _relayed(parts), cell(commands=[STAY])
    parts.submit(command)
    parts.scheduler.on_interrupted()
    parts.loop.fire("after an interrupt")
    parts.kernel_replies(running)
    next_cell = _queued(parts)
    parts.loop.fire("after an interrupt")
    assert [parts.status_of(each) for each in (command, next_cell)] == [None, None]
    parts.command_cells[0].finish()
    assert parts.status_of(command) == "ok"


def test_a_kernel_that_has_opened_its_sockets_again_is_asked(parts: Parts) -> None:
    lost = _relayed(parts)
    parts.scheduler.ask_all()
    parts.kernel_answers()
    assert parts.status_of(lost) == "error"
