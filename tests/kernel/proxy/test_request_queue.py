"""The queue of shell requests, and the account of those that the kernel executes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.protocol.wire import Wire
from bitfusion_kernel.proxy.cells.request_queue import (
    MOST,
    MOST_HELPERS,
    MOST_OVER,
    QueuedRequest,
    RequestQueue,
    RequestsInKernel,
)

WIRE = Wire(b"")


def _request(
    message_type: str = "execute_request",
    commands: Any = None,
    *,
    subshell: str | None = None,
    arrived_at: float = 0.0,
    **content: Any,
) -> QueuedRequest:
    message = WIRE.read(WIRE.build(message_type, content))
    if subshell is not None:
        message.header["subshell_id"] = subshell
    return QueuedRequest(message, arrived_at, commands)


def test_what_a_request_is() -> None:
    cell = _request(code="1")
    assert (cell.is_execute, cell.is_cell, cell.is_silent, cell.stops_on_error) == (True, True, False, True)
    silent = _request(code="1", silent=True)
    assert (silent.is_execute, silent.is_cell, silent.is_silent) == (True, False, True)
    commands = _request(code="%bitfusion", commands=["status"])
    assert (commands.is_execute, commands.is_cell) == (True, False)
    assert not _request(stop_on_error=False).stops_on_error
    assert _request(allow_stdin=False).is_unattended
    for watched in ({}, {"allow_stdin": True}, {"allow_stdin": None}):
        assert not _request(**watched).is_unattended
    for helper in (silent, _request(store_history=False), _request(store_history=False, allow_stdin=True)):
        assert (helper.is_helper, helper.is_cell) == (True, False)
    for person in (cell, _request(store_history=True), _request(store_history=False, allow_stdin=False)):
        assert (person.is_helper, person.is_cell) == (False, True)
    comm = _request("comm_open")
    assert (comm.is_execute, comm.is_cell) == (False, False)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([None, "a", "b"])), max_size=12))
def test_taking_some_out_of_the_queue_keeps_the_order_of_all(kinds: list[tuple[bool, str | None]]) -> None:
    queue = RequestQueue()
    requests = []
    for number, (silent, subshell) in enumerate(kinds):
        requests.append(_request(silent=silent, subshell=subshell, arrived_at=number))
        queue.append(requests[-1])
    first = queue.first_where(lambda request: request.is_silent)
    assert first is next((request for request in requests if request.is_silent), None)
    assert queue.take_where(lambda r: r.is_silent) == [r for r in requests if r.is_silent]
    left = [request for request in requests if not request.is_silent]
    assert list(queue) == left
    assert len(queue) == len(left)
    assert set(queue.subshells) == {request.subshell for request in left}
    while left:
        assert queue.first(left[0].subshell) is left[0]
        queue.remove(left.pop(0))
    assert not queue
    assert queue.first(None) is None


def test_one_can_leave_the_queue() -> None:
    queue = RequestQueue()
    first, second = _request(), _request()
    queue.append(first)
    queue.append(second)
    queue.remove(first)
    assert list(queue) == [second]
    assert first not in queue
    assert second in queue


def test_cells_in_the_kernel_are_forgotten_when_answered() -> None:
    in_kernel = RequestsInKernel()
    first, second = _request(), _request()
    in_kernel.sent(first)
    in_kernel.sent(second)
    in_kernel.sent(_request("comm_open"))
    assert in_kernel.answered(first.message.id) == (first, [])
    assert in_kernel.answered(first.message.id) == (None, [])
    assert in_kernel.running() == [second]
    in_kernel.answered(second.message.id)
    assert not in_kernel.runs(None)
    assert in_kernel.running() == []


def test_a_reply_proves_that_what_its_shell_was_sent_before_is_over() -> None:
    in_kernel = RequestsInKernel()
    lost, silent, answered, later = (_request(silent=number == 1) for number in range(4))
    aside = _request(subshell="a")
    for request in (lost, silent, aside, answered):
        in_kernel.sent(request)
    in_kernel.asked("question", None)
    in_kernel.sent(later)
    assert in_kernel.answered(answered.message.id) == (answered, [lost, silent])
    assert in_kernel.running() == [later, aside]
    assert in_kernel.answered("question") == (None, [])
    assert in_kernel.shells == [None, "a"]
    assert in_kernel.answered(later.message.id) == (later, [])
    assert in_kernel.shells == ["a"]


def test_a_cell_is_over_once_until_its_id_comes_again() -> None:
    in_kernel = RequestsInKernel()
    lost, answered = _request(), _request()
    for _ in range(2):
        in_kernel.sent(lost)
        in_kernel.sent(answered)
        assert [in_kernel.is_over(each.message.id) for each in (lost, answered)] == [False, False]
        in_kernel.answered(answered.message.id)
        assert [in_kernel.is_over(each.message.id) for each in (lost, answered)] == [True, True]
    for _ in range(MOST_OVER):
        other = _request()
        in_kernel.sent(other)
        in_kernel.answered(other.message.id)
    assert not in_kernel.is_over(answered.message.id), "forgotten"


def test_an_id_of_several_cells_at_once_is_never_over() -> None:
    in_kernel = RequestsInKernel()
    request = _request()
    in_kernel.sent(request)
    in_kernel.sent(request)
    in_kernel.answered(request.message.id)
    assert not in_kernel.is_over(request.message.id)


def test_a_shell_is_unsure_when_its_last_is_old_and_no_question() -> None:
    in_kernel = RequestsInKernel()
    assert in_kernel.unsure(5.0) == []
    in_kernel.sent(_request(arrived_at=4.0))
    in_kernel.sent(_request(subshell="a", arrived_at=6.0))
    assert (in_kernel.unsure(3.0), in_kernel.unsure(5.0), in_kernel.unsure(7.0)) == ([], [None], [None, "a"])
    assert not in_kernel.has_asked(None)
    in_kernel.asked("question", None)
    assert in_kernel.has_asked(None)
    assert in_kernel.unsure(7.0) == ["a"]
    assert in_kernel.answered("question")[1][0].arrived_at == 4.0
    assert not in_kernel.runs(None)


def test_null_is_no_subshell() -> None:
    """JupyterLab sends `"subshell_id": null` in every header."""
    in_kernel = RequestsInKernel()
    cell = _request()
    cell.message.header["subshell_id"] = None
    in_kernel.sent(cell)
    assert cell.subshell is None
    assert in_kernel.runs(None)


def test_each_shell_has_an_account_of_its_own() -> None:
    in_kernel = RequestsInKernel()
    main, silent, aside = _request(), _request(silent=True, subshell="a"), _request(subshell="a")
    for request in (main, silent, aside):
        in_kernel.sent(request)
    assert in_kernel.running() == [main, aside]
    in_kernel.answered(main.message.id)
    assert (in_kernel.runs(None), in_kernel.runs("a")) == (False, True)
    assert in_kernel.running() == [aside]


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


def test_the_queue_has_a_bound_and_a_smaller_one_for_what_clients_send_for_themselves() -> None:
    queue = RequestQueue()
    for _ in range(MOST_HELPERS):
        queue.append(_request(silent=True))
    assert not queue.has_room_for(_request(silent=True))
    assert not queue.has_room_for(_request(store_history=False))
    while queue.has_room_for(cell := _request()):
        queue.append(cell)
    assert len(queue) == MOST
