"""Interrupt, shutdown and the debugger's requests, in each state of the kernel."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from bitfusion_client.errors import ClientNotFound, WaitCancelled
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.protocol.wire import DELIMITER, Message
from bitfusion_kernel.proxy.lifecycle import KernelState
from bitfusion_kernel.proxy.requests.control_requests import INTERRUPT_DELAY, MOST_HELD, ControlRequests
from bitfusion_kernel.proxy.requests.signals import Signals
from tests.kernel.proxy.parts import STAY, WIRE, Parts, cell, message

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


@pytest.mark.parametrize(
    ("allow_stdin", "next_step"),
    [
        (True, "run the cell again to wait again."),
        (
            False,
            "run the cell again. If a time limit for cells has ended it: "
            "with BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts the wait instead.",
        ),
    ],
)
def test_a_tool_that_has_interrupted_a_cell_at_its_limit_is_told_what_counts_the_wait(
    allow_stdin: bool, next_step: str
) -> None:
    parts, waiting = Parts(), cell(allow_stdin=allow_stdin)
    control = _control(parts)
    parts.submit(waiting)
    control.interrupt()
    parts.loop.fire("interrupt")
    (reply,) = parts.shell.messages()
    assert reply.content["traceback"][-1] == f"What to do: {next_step}"


def test_a_second_wait_can_be_cancelled_while_the_first_still_ends() -> None:
    parts, first, second = Parts(), cell(), cell()
    control = _control(parts)
    for waiting in (first, second):
        parts.submit(waiting)
        control.interrupt()
        parts.loop.fire("interrupt")
    assert (parts.status_of(first), parts.status_of(second)) == ("error", "error")
    assert len(parts.started) == 1


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_an_interrupt_sent_before_this_kernel_started_changes_nothing(
    state: str,
) -> None:
    old = message("interrupt_request")
    parts, first = Parts(), cell()
    parts.started_at = time.time()
    _control(parts)
    parts.submit(first)
    if state == "running":
        parts.connect()
    _send(parts, old)
    assert _replies(parts, old)[0].content == {"status": "ok"}
    assert "interrupt" not in parts.loop.timers
    assert not parts.signals
    assert not parts.link.control


@pytest.mark.parametrize("how", ["nothing was asked for", "no cell waits"])
def test_an_interrupt_with_no_cell_to_tell_changes_nothing(how: str) -> None:
    parts = Parts()
    control = _control(parts)
    if how == "no cell waits":
        parts.lifecycle.request()
    before = parts.lifecycle.state
    control.interrupt()
    assert "interrupt" not in parts.loop.timers, "it would hit a cell that comes within 150 ms"
    assert parts.lifecycle.state is before
    assert not parts.stopped


def test_an_interrupt_of_a_wait_whose_cell_has_ended_otherwise_changes_nothing() -> None:
    parts, waiting = Parts(), cell()
    control = _control(parts)
    parts.submit(waiting)
    control.interrupt()
    parts.scheduler.fail_wait(ERROR)
    parts.loop.fire("interrupt")
    assert parts.lifecycle.state is KernelState.WAITING
    assert not parts.stopped


def test_an_interrupt_meant_for_the_kernel_before_is_answered_and_forgotten() -> None:
    parts, request = Parts(), message("interrupt_request")
    parts.interrupts_expected = False
    _control(parts)
    _send(parts, request)
    assert _replies(parts, request)
    assert "interrupt" not in parts.loop.timers


@pytest.mark.parametrize("by_message", [False, True])
def test_an_interrupt_of_a_kernel_that_runs_is_a_signal_or_the_message_that_it_wants(
    by_message: bool,
) -> None:
    parts, request = Parts(), message("interrupt_request")
    parts.interrupt_by_message = by_message
    control = _control(parts)
    parts.connect()
    _send(parts, request)
    control.interrupt()
    if by_message:
        assert (parts.link.control, parts.link.interrupts, parts.signals) == ([request.frames], 1, [])
        assert not _replies(parts, request), "the kernel answers"
    else:
        assert (parts.link.control, parts.link.interrupts) == ([], 0)
        assert parts.signals == [signal.SIGINT, signal.SIGINT]
        assert _replies(parts, request)[0].content == {"status": "ok"}


def test_an_interrupt_beside_a_command_cell_is_the_command_cells() -> None:
    parts, request = Parts(), message("interrupt_request")
    _control(parts)
    parts.connect()
    parts.submit(cell(commands=[STAY]))
    _send(parts, request)
    assert _replies(parts, request)
    assert parts.command_cells[0].told == ["interrupt"]
    assert not parts.link.control


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


@pytest.mark.parametrize("restart", [True, False])
def test_a_shutdown_leaves_nothing_of_the_wait_where_a_client_still_listens(restart: bool) -> None:
    parts, request, waiting = Parts(), message("shutdown_request", restart=restart), cell()
    _control(parts)
    parts.submit(waiting)
    parts.display._since -= 1000
    parts.loop.fire("wait display")
    _send(parts, request)
    assert parts.published(waiting) == ["busy", "display_data", "clear_output"]
    assert [m.type for m in parts.iopub.messages()].index("clear_output") < 3, "before the reply"


@pytest.mark.parametrize("restart", [True, False])
def test_a_cell_whose_tool_gives_up_shows_why_and_one_that_is_restarted_does_not(restart: bool) -> None:
    parts, request, waiting = Parts(), message("shutdown_request", restart=restart), cell()
    parts.given_up = ERROR
    _control(parts)
    parts.submit(waiting)
    _send(parts, request)
    assert parts.published(waiting) == (["busy"] if restart else ["busy", "error"])
    assert parts.status_of(waiting) is None, "its client waits for no reply any more"


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


def _signals(parts: Parts) -> Callable[[int], None]:
    """What delivers a signal to the proxy."""
    delivered: list[Callable[[int], None]] = []
    parts.loop.on_signals = lambda numbers, action: delivered.append(action)  # type: ignore[method-assign]  # a fake
    control = _control(parts)
    Signals(
        parts.loop,
        parts.lifecycle,
        parts.scheduler,
        interrupt=control.interrupt,
        signal_kernel=parts.signals.append,
    ).watch()
    return delivered[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_ends_a_proxy_without_a_kernel(number: int) -> None:
    parts, waiting = Parts(), cell()
    deliver = _signals(parts)
    parts.submit(waiting)
    parts.display._since -= 1000
    parts.loop.fire("wait display")
    deliver(number)
    assert parts.lifecycle.exit_status == 128 + number
    assert parts.published(waiting) == ["busy", "display_data", "clear_output"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_kernel_that_is_told_to_end_gets_time_for_its_handler(number: int) -> None:
    parts = Parts()
    deliver = _signals(parts)
    parts.connect()
    deliver(number)
    assert parts.signals == [number]
    assert parts.lifecycle.state is KernelState.SHUTTING_DOWN
    due = parts.loop.timers["end"][0]
    deliver(signal.SIGTERM)
    assert (parts.signals, parts.loop.timers["end"][0]) == ([number, signal.SIGTERM], due), "no more time"
    parts.loop.fire("end")
    assert parts.lifecycle.exit_status == 128 + number


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT])
def test_other_signals_are_the_kernels_or_nobodys(number: int) -> None:
    parts = Parts()
    deliver = _signals(parts)
    deliver(number)
    parts.launch()
    deliver(number)
    assert parts.signals == []
    parts.lifecycle.kernel_connected()
    deliver(number)
    assert parts.signals == [number]
    assert not parts.lifecycle.over


def test_what_jupyter_was_started_to_ignore_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    caught: set[int] = set()
    parts.loop.on_signals = lambda numbers, action: caught.update(numbers)  # type: ignore[method-assign]  # a fake
    ignored = (signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
    monkeypatch.setattr(
        signal, "getsignal", lambda number: signal.SIG_IGN if number in ignored else signal.SIG_DFL
    )
    Signals(
        parts.loop, parts.lifecycle, parts.scheduler, interrupt=lambda: None, signal_kernel=lambda _: None
    ).watch()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMAX} <= caught
    assert not {signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL, signal.SIGSEGV, signal.SIGCHLD} & caught


# -- what the kernel alone can answer ------------------------------------------------------------------------


def test_a_request_with_an_answer_is_answered_and_what_has_no_reply_waits_for_the_kernel_in_order() -> None:
    parts = Parts()
    control = _control(parts)
    known, first, second = message("kernel_info_request"), message("comm_open"), message("odd")
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


def test_a_request_that_only_a_kernel_could_serve_is_refused_at_once() -> None:
    """Whoever waits for the reply would do so until somebody runs a cell."""
    parts, request = Parts(), message("something_new_request")
    _control(parts)
    _send(parts, request)
    (reply,) = _replies(parts, request)
    assert (reply.type, reply.content["status"]) == ("something_new_reply", "error")
    assert (reply.content["ename"], reply.content["traceback"][-1]) == (
        "NoKernelYet",
        "What to do: run a cell, then do this again.",
    )
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED


def test_jupyters_panels_are_told_what_is_used_while_no_kernel_runs() -> None:
    parts, request = Parts(), message("usage_request")
    _control(parts)
    _send(parts, request)
    assert _replies(parts, request)[0].content["pid"] == os.getpid()
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED


def test_what_waits_for_the_kernel_on_control_has_a_bound() -> None:
    parts = Parts()
    control = _control(parts)
    asked = [message("debug_request", command="initialize", seq=number) for number in range(MOST_HELD + 5)]
    _send(parts, *asked)
    for late in asked[MOST_HELD:]:
        (reply,) = _replies(parts, late)
        assert (reply.content["success"], reply.content["request_seq"]) == (False, late.content["seq"])
    _send(parts, *(message("comm_msg") for _ in range(1000)))
    parts.connect()
    control.on_kernel_connected()
    assert parts.link.control == [request.frames for request in asked[:MOST_HELD]]


@pytest.mark.parametrize("kind", ["comm_open", "debug_request"])
def test_what_is_held_hears_that_there_is_no_gpu(kind: str) -> None:
    parts, request = Parts(), message(kind)
    control = _control(parts)
    _send(parts, request)
    control.refuse_held(ERROR)
    (reply,) = _replies(parts, request)
    if kind == "comm_open":
        assert (reply.content["status"], reply.content["ename"]) == ("error", "WaitCancelled")
        assert reply.content["evalue"] == "Waiting for GPUs was cancelled."
        assert "interrupted after 1 s of waiting" in reply.content["traceback"][2]
    else:
        assert reply.content["message"] == ERROR.user_message


def test_what_needs_a_kernel_while_a_cancelled_wait_ends_asks_again() -> None:
    parts = Parts()
    control = _control(parts)
    parts.submit(cell())
    parts.lifecycle.cancel()
    _send(parts, message("debug_request", command="initialize"))
    assert len(parts.started) == 1
    parts.lifecycle.wrapper_exited(-15)
    control.on_wait_over()
    assert len(parts.started) == 2


def test_what_a_kernel_is_not_started_for_asks_for_none_after_a_wait() -> None:
    parts = Parts()
    control = _control(parts)
    _send(parts, message("usage_request"))
    control.on_wait_over()
    assert not parts.started


def test_a_debugger_asks_for_no_gpu_that_only_acquire_may_ask_for() -> None:
    parts = Parts()
    _control(parts)
    parts.policy.error = ERROR
    request = message("debug_request", command="initialize")
    _send(parts, request)
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED
    assert _replies(parts, request)[0].content["message"] == ERROR.user_message
    parts.lifecycle.request(told_to=True)
    again = message("debug_request", command="initialize")
    _send(parts, again)
    assert not _replies(parts, again), "a GPU has been asked for: it waits with the others"


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
    own = WIRE.build("interrupt_reply", {"status": "ok"}, parent=message("interrupt_request").header)
    assert own[0] == DELIMITER
    control.relay_replies(iter([relayed, own]))
    assert parts.control.sent == [relayed]
