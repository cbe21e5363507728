"""Interrupt, shutdown and the debugger's requests, in each state of the kernel."""

from __future__ import annotations

import signal
import time

import pytest

from bitfusion_client.errors import ClientNotFound, WaitCancelled
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.protocol.wire import DELIMITER, Message
from bitfusion_kernel.proxy.control_requests import INTERRUPT_DELAY, ControlRequests
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.proxy.parts import Parts, cell, message

ERROR = WaitCancelled(GpuRequest(), "interrupted after 1 s of waiting")


def _control(parts: Parts) -> ControlRequests:
    control = parts.make_control()
    control.watch()
    return control


def _send(parts: Parts, *requests: Message) -> None:
    """Clients send requests on control."""
    parts.control.incoming += [request.frames for request in requests]
    parts.loop.handlers[parts.control]()


def _replies(parts: Parts, request: Message) -> list[Message]:
    return [m for m in parts.control.messages() if m.parent_header["msg_id"] == request.id]


# -- interrupt -----------------------------------------------------------------------------------------


def test_an_interrupt_ends_the_wait_a_moment_later() -> None:
    parts, waiting, request = Parts(), cell(), message("interrupt_request")
    _control(parts)
    parts.submit(waiting)
    before = time.monotonic()
    _send(parts, request)
    assert _replies(parts, request)[0].content == {"status": "ok"}
    assert parts.status_of(waiting) is None
    assert before <= parts.loop.timers["interrupt"][0] - INTERRUPT_DELAY <= time.monotonic()
    parts.loop.fire("interrupt")
    assert parts.status_of(waiting) == "error"
    assert parts.lifecycle.state is KernelState.CANCELLING
    assert (parts.stopped, parts.link.closed) == (1, 1)


def test_a_second_wait_can_be_cancelled_while_the_first_still_ends() -> None:
    parts, first, second = Parts(), cell(), cell()
    control = _control(parts)
    for waiting in (first, second):
        parts.submit(waiting)
        control.interrupt()
        parts.loop.fire("interrupt")
    assert (parts.status_of(first), parts.status_of(second)) == ("error", "error")
    assert len(parts.started) == 1


@pytest.mark.parametrize("how", ["nothing was asked for", "no cell waits"])
def test_an_interrupt_with_no_cell_to_tell_changes_nothing(how: str) -> None:
    parts = Parts()
    control = _control(parts)
    if how == "no cell waits":
        parts.lifecycle.request()
    before = parts.lifecycle.state
    control.interrupt()
    parts.loop.fire("interrupt")
    assert parts.lifecycle.state is before
    assert not parts.stopped


def test_an_interrupt_meant_for_the_kernel_before_is_answered_and_forgotten() -> None:
    parts, request = Parts(), message("interrupt_request")
    parts.interrupts_expected = False
    _control(parts)
    _send(parts, request)
    assert _replies(parts, request)
    assert "interrupt" not in parts.loop.timers


def test_an_interrupt_in_a_running_cell_is_the_kernels() -> None:
    parts, request = Parts(), message("interrupt_request")
    _control(parts)
    parts.connect()
    _send(parts, request)
    assert parts.link.control == [request.frames]
    assert not _replies(parts, request)


def test_sigint_interrupts_a_kernel_that_runs() -> None:
    parts = Parts()
    control = _control(parts)
    parts.connect()
    control.interrupt()
    assert parts.link.interrupts == 1


def test_an_interrupt_beside_a_command_cell_is_the_command_cells() -> None:
    parts, request = Parts(), message("interrupt_request")
    _control(parts)
    parts.connect()
    parts.submit(cell(commands=["stay"]))
    _send(parts, request)
    assert _replies(parts, request)
    assert parts.command_cells[0].told == ["interrupt"]
    assert not parts.link.control


def test_an_interrupt_whose_wait_is_over_is_void() -> None:
    parts, waiting = Parts(), cell()
    control = _control(parts)
    parts.submit(waiting)
    control.interrupt()
    parts.launch()
    parts.lifecycle.kernel_connected()
    control.on_kernel_connected()
    assert "interrupt" not in parts.loop.timers


# -- shutdown and signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [True, False])
def test_a_shutdown_without_a_kernel_is_answered_and_ends_the_proxy(restart: bool) -> None:
    parts, request = Parts(), message("shutdown_request", restart=restart)
    control = _control(parts)
    parts.submit(cell())
    control.interrupt()
    _send(parts, request)
    (reply,) = _replies(parts, request)
    assert reply.content == {"status": "ok", "restart": restart}
    published = [m.type for m in parts.iopub.messages() if m.parent_header.get("msg_id") == request.id]
    assert published == ["status", "shutdown_reply", "status"]
    assert parts.lifecycle.exit_status == 0
    assert "interrupt" not in parts.loop.timers, "the interrupt ahead of a shutdown is part of it"


def test_a_kernel_that_runs_gets_its_shutdown_each_time() -> None:
    parts, request = Parts(), message("shutdown_request")
    _control(parts)
    parts.connect()
    _send(parts, request, request)
    assert parts.link.control == [request.frames, request.frames]
    assert parts.lifecycle.state is KernelState.SHUTTING_DOWN
    assert not parts.control.sent


def test_a_shutdown_on_shell_is_answered_there_even_with_a_kernel() -> None:
    parts, request = Parts(), message("shutdown_request")
    control = _control(parts)
    parts.connect()
    control.shut_down(request, parts.channel)
    assert [m.type for m in parts.shell.messages()] == ["shutdown_reply"]
    assert parts.lifecycle.exit_status == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_the_proxy(number: int) -> None:
    parts = Parts()
    delivered: list[object] = []
    parts.loop.on_signals = lambda numbers, action: delivered.append(action)  # type: ignore[method-assign]  # a fake
    _control(parts)
    (deliver,) = delivered
    deliver(number)  # type: ignore[operator]  # the proxy's handler
    assert parts.lifecycle.exit_status == 128 + number


# -- what the kernel alone can answer ------------------------------------------------------------------------


def test_a_request_with_an_answer_is_answered_and_others_wait_for_the_kernel_in_order() -> None:
    parts = Parts()
    control = _control(parts)
    known, first, second = message("kernel_info_request"), message("usage_request"), message("odd")
    _send(parts, known, first, second)
    assert _replies(parts, known)[0].content["banner"] == "hello"
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED
    parts.connect()
    control.on_kernel_connected()
    assert parts.link.control == [first.frames, second.frames]
    _send(parts, known)
    assert parts.link.control[2:] == [known.frames], "from now on the kernel answers all"


def test_a_debugger_that_is_turned_on_gets_a_kernel_now() -> None:
    parts = Parts()
    control = _control(parts)
    request = message("debug_request", command="initialize", seq=3)
    _send(parts, request)
    assert parts.lifecycle.state is KernelState.WAITING
    control.refuse_held(ERROR)
    (reply,) = _replies(parts, request)
    assert (reply.content["success"], reply.content["request_seq"]) == (False, 3)
    assert reply.content["message"] == ERROR.user_message
    control.refuse_held(ERROR)
    assert len(_replies(parts, request)) == 1


def test_a_debugger_hears_at_once_that_no_gpu_can_be_asked_for() -> None:
    parts = Parts()
    parts.start_error = ClientNotFound(("/no/such",))
    _control(parts)
    request = message("debug_request", command="initialize")
    _send(parts, request)
    assert _replies(parts, request)[0].content["success"] is False


def test_the_kernels_replies_are_relayed_except_those_to_the_proxy_itself() -> None:
    parts = Parts()
    control = _control(parts)
    relayed = [b"client", DELIMITER, b"x"]
    control.relay_replies(iter([relayed, [DELIMITER, b"own"]]))
    assert parts.control.sent == [relayed]
