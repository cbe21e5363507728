"""The line of cells and the account of those that run."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.protocol.wire import Wire
from bitfusion_kernel.proxy.request_queue import QueuedRequest, RequestQueue, RequestsInKernel

WIRE = Wire(b"")


def _entry(message_type: str = "execute_request", commands: Any = None, **content: Any) -> QueuedRequest:
    return QueuedRequest(WIRE.read(WIRE.build(message_type, content)), 0.0, commands)


def test_what_an_entry_is() -> None:
    cell = _entry(code="1")
    assert (cell.is_execute, cell.is_cell, cell.is_silent, cell.stops_on_error) == (True, True, False, True)
    silent = _entry(code="1", silent=True)
    assert (silent.is_execute, silent.is_cell, silent.is_silent) == (True, False, True)
    commands = _entry(code="%bitfusion", commands=["status"])
    assert (commands.is_execute, commands.is_cell) == (True, False)
    assert not _entry(stop_on_error=False).stops_on_error
    comm = _entry("comm_open")
    assert (comm.is_execute, comm.is_cell) == (False, False)


@given(st.lists(st.booleans(), max_size=12))
def test_taking_some_out_of_the_line_keeps_the_order_of_all(silent: list[bool]) -> None:
    queue = RequestQueue()
    entries = [_entry(silent=flag) for flag in silent]
    for entry in entries:
        queue.append(entry)
    first = queue.first_where(lambda entry: entry.is_silent)
    assert first is next((entry for entry in entries if entry.is_silent), None)
    assert queue.take_where(lambda entry: entry.is_silent) == [e for e in entries if e.is_silent]
    left = [entry for entry in entries if not entry.is_silent]
    assert queue.entries() == left
    assert len(queue) == len(left)
    while left:
        assert queue.first is left[0]
        assert queue.pop() is left.pop(0)
    assert queue.first is None


def test_one_can_leave_the_line() -> None:
    queue = RequestQueue()
    first, second = _entry(), _entry()
    queue.append(first)
    queue.append(second)
    queue.remove(first)
    assert queue.entries() == [second]


def test_running_cells_are_forgotten_when_answered() -> None:
    running = RequestsInKernel()
    first, second = _entry(), _entry()
    running.sent(first)
    running.sent(second)
    assert running.answered(first.message.id) is first
    assert running.answered(first.message.id) is None
    assert running.take_all() == [second]
    assert not running
