"""The queue of shell requests, and the account of those that the kernel executes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.protocol.wire import Wire
from bitfusion_kernel.proxy.request_queue import QueuedRequest, RequestQueue, RequestsInKernel

WIRE = Wire(b"")


def _request(message_type: str = "execute_request", commands: Any = None, **content: Any) -> QueuedRequest:
    return QueuedRequest(WIRE.read(WIRE.build(message_type, content)), 0.0, commands)


def test_what_a_request_is() -> None:
    cell = _request(code="1")
    assert (cell.is_execute, cell.is_cell, cell.is_silent, cell.stops_on_error) == (True, True, False, True)
    silent = _request(code="1", silent=True)
    assert (silent.is_execute, silent.is_cell, silent.is_silent) == (True, False, True)
    commands = _request(code="%bitfusion", commands=["status"])
    assert (commands.is_execute, commands.is_cell) == (True, False)
    assert not _request(stop_on_error=False).stops_on_error
    comm = _request("comm_open")
    assert (comm.is_execute, comm.is_cell) == (False, False)


@given(st.lists(st.booleans(), max_size=12))
def test_taking_some_out_of_the_queue_keeps_the_order_of_all(silent: list[bool]) -> None:
    queue = RequestQueue()
    requests = [_request(silent=flag) for flag in silent]
    for request in requests:
        queue.append(request)
    first = queue.first_where(lambda request: request.is_silent)
    assert first is next((request for request in requests if request.is_silent), None)
    assert queue.take_where(lambda r: r.is_silent) == [r for r in requests if r.is_silent]
    left = [request for request in requests if not request.is_silent]
    assert queue.requests() == left
    assert len(queue) == len(left)
    while left:
        assert queue.first is left[0]
        assert queue.pop() is left.pop(0)
    assert queue.first is None


def test_one_can_leave_the_queue() -> None:
    queue = RequestQueue()
    first, second = _request(), _request()
    queue.append(first)
    queue.append(second)
    queue.remove(first)
    assert queue.requests() == [second]
    assert first not in queue
    assert second in queue


def test_cells_in_the_kernel_are_forgotten_when_answered() -> None:
    in_kernel = RequestsInKernel()
    first, second = _request(), _request()
    in_kernel.sent(first)
    in_kernel.sent(second)
    in_kernel.sent(_request("comm_open"))
    assert in_kernel.answered(first.message.id) is first
    assert in_kernel.answered(first.message.id) is None
    assert in_kernel.take_all() == [second]
    assert not in_kernel


def test_a_cell_in_a_subshell_is_not_tracked() -> None:
    in_kernel = RequestsInKernel()
    cell = _request()
    cell.message.header["subshell_id"] = "a"
    in_kernel.sent(cell)
    assert not in_kernel


def test_the_reply_to_a_cell_answered_early_is_withheld_once() -> None:
    in_kernel = RequestsInKernel()
    silent = _request(silent=True)
    silent.answered = True
    assert not in_kernel.some_answered_early
    in_kernel.sent(silent)
    assert in_kernel.some_answered_early
    assert not in_kernel.take_answered_early("another")
    assert in_kernel.take_answered_early(silent.message.id)
    assert not in_kernel.take_answered_early(silent.message.id)
    assert not in_kernel.some_answered_early
