"""Requests on shell: which are answered, queued or relayed, and the kernel's replies."""

from __future__ import annotations

import pytest

from bitfusion_kernel.protocol.wire import Message, Wire
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.requests.shell_requests import (
    ASKS_FOR_WIDGETS,
    BETTER_FROM_THE_KERNEL,
    ShellRequests,
)
from bitfusion_kernel.proxy.requests.start_up_wait import StartUpWait
from tests.kernel.proxy.parts import WIRE, Parts, cell, message

CLIENT = [b"client"]


def _shell(parts: Parts) -> ShellRequests:
    shell = parts.make_shell()
    shell.watch()
    return shell


def _send(parts: Parts, *requests: Message) -> None:
    """Clients send requests on shell."""
    parts.shell.incoming += [request.frames for request in requests]
    parts.loop.handlers[parts.shell]()


def _reply_types(parts: Parts) -> list[str]:
    return [m.type for m in parts.shell.messages()]


def test_without_a_kernel_what_has_an_answer_is_answered_and_the_rest_waits() -> None:
    parts = Parts()
    shell = _shell(parts)
    assert not shell.seen
    comm = message("comm_open")
    _send(parts, message("kernel_info_request"), comm, message("complete_request", code="x"))
    assert _reply_types(parts) == ["kernel_info_reply", "complete_reply"]
    assert shell.seen
    parts.connect()
    assert parts.in_kernel() == [comm.id]


@pytest.mark.parametrize("kind", ["comm_msg", "comm_close"])
def test_without_a_kernel_what_is_for_no_comm_is_over_at_once(kind: str) -> None:
    """Its client waits for `idle`, as there is no reply; a kernel may never come."""
    parts = Parts()
    _shell(parts)
    nobodys = QueuedRequest(message(kind, comm_id="a"), 0.0)
    opening, its_own = message("comm_open", comm_id="b"), message(kind, comm_id="b")
    _send(parts, nobodys.message, opening, its_own)
    assert parts.published(nobodys) == ["busy", "idle"]
    assert not parts.shell.sent
    parts.connect()
    assert parts.in_kernel() == [opening.id, its_own.id]


def test_without_a_kernel_whoever_asks_for_widgets_hears_that_there_are_none() -> None:
    parts = Parts()
    _shell(parts)
    opening = message("comm_open", comm_id="a", target_name=ASKS_FOR_WIDGETS)
    its_own = message("comm_msg", comm_id="a")
    _send(parts, opening, its_own)
    assert parts.published(QueuedRequest(opening, 0.0)) == ["busy", "comm_close", "idle"]
    assert parts.published(QueuedRequest(its_own, 0.0)) == ["busy", "idle"]
    parts.connect()
    assert parts.in_kernel() == []
    _send(parts, opening)
    assert parts.in_kernel() == [opening.id], "a kernel may have some"


@pytest.mark.parametrize("request_type", sorted(BETTER_FROM_THE_KERNEL))
def test_a_kernel_that_starts_answers_what_it_knows_better(request_type: str) -> None:
    parts = Parts()
    shell = _shell(parts)
    parts.launch()
    better, known = message(request_type, code="x"), message("kernel_info_request")
    _send(parts, better, known)
    assert _reply_types(parts) == ["kernel_info_reply"]
    parts.lifecycle.wrapper_exited(1)
    shell.on_wait_over()
    assert _reply_types(parts)[1:] == [request_type.replace("request", "reply")]


def _starting_up() -> tuple[Parts, ShellRequests]:
    parts = Parts()
    parts.lifecycle.request()
    parts.start_up = StartUpWait(parts.loop, parts.lifecycle, lasts=True)
    return parts, _shell(parts)


def test_a_kernel_that_is_ready_only_with_its_gpu_says_so_itself() -> None:
    """Clients ask every second; a queue of all that would flood the client that reads one answer."""
    parts, _ = _starting_up()
    asked = [message("kernel_info_request") for _ in range(3)]
    another = message("kernel_info_request", client=b"another")
    _send(parts, *asked[:2], another, message("comm_info_request"), asked[2])
    assert _reply_types(parts) == ["comm_info_reply"]
    parts.connect()
    assert parts.in_kernel() == [another.id, asked[2].id]


def test_a_kernel_that_gets_no_gpu_is_ready_to_say_why() -> None:
    parts, shell = _starting_up()
    asked = message("kernel_info_request")
    _send(parts, asked)
    parts.lifecycle.wrapper_exited(1)
    parts.start_up.end()
    shell.on_wait_over()
    assert _reply_types(parts) == ["kernel_info_reply"]
    _send(parts, message("kernel_info_request"))
    assert _reply_types(parts) == ["kernel_info_reply"] * 2


def test_a_silent_cell_of_command_lines_is_the_kernels() -> None:
    parts = Parts()
    _shell(parts)
    _send(parts, message("execute_request", code="%bitfusion", silent=True))
    assert not parts.command_cells
    _send(parts, message("execute_request", code="%bitfusion"))
    assert len(parts.command_cells) == 1


def test_a_running_kernel_gets_requests_as_they_came() -> None:
    parts = Parts()
    _shell(parts)
    parts.connect()
    requests = [message("comm_msg"), message("execute_request", code="1"), message("kernel_info_request")]
    _send(parts, *requests)
    assert parts.kernel == [request.frames for request in requests]
    assert not parts.shell.sent


def test_a_command_cell_beside_a_running_kernel_never_reaches_it() -> None:
    parts = Parts()
    _shell(parts)
    parts.connect()
    commands = message("execute_request", code="%bitfusion status")
    _send(parts, commands, message("execute_request", code="x = '%bitfusion'"))
    assert [c.cell.message.id for c in parts.command_cells] == [commands.id]
    assert len(parts.kernel) == 1


def test_a_shutdown_on_shell_is_served_here_even_with_a_kernel() -> None:
    parts = Parts()
    served: list[Message] = []
    shell = parts.make_shell(served.append)
    shell.watch()
    parts.connect()
    _send(parts, message("shutdown_request"))
    assert len(served) == 1
    assert not parts.kernel


@pytest.mark.parametrize("connected", [False, True])
def test_a_wrong_signature_is_passed_over(connected: bool) -> None:
    parts = Parts()
    _shell(parts)
    if connected:
        parts.connect()
    parts.shell.incoming.append(Wire(b"guessed").build("execute_request", {"code": "%bitfusion"}))
    _send(parts, message("kernel_info_request"))
    assert len(parts.kernel) + len(parts.shell.sent) == 1
    assert not parts.command_cells


def test_shell_is_not_read_while_the_kernels_inbox_is_full() -> None:
    parts = Parts()
    shell = _shell(parts)
    parts.connect()
    parts.kernel_takes = 1
    requests = [message("execute_request", code=str(number)) for number in range(4)]
    _send(parts, *requests)
    assert parts.shell not in parts.loop.handlers
    assert len(parts.shell.incoming) == 2, "what is not read fills Jupyter's inbox, not ours"
    parts.kernel_takes, parts.link.inbox_full = 10, False
    shell.on_kernel_replies(iter([]))
    parts.loop.handlers[parts.shell]()
    assert parts.in_kernel() == [request.id for request in requests]


def test_replies_are_relayed_and_cells_accounted_for() -> None:
    parts = Parts()
    shell = _shell(parts)
    parts.connect()
    first, commands = message("execute_request", code="1"), message("execute_request", code="%bitfusion")
    _send(parts, first, commands)
    assert not parts.command_cells, "its turn comes after the first"
    reply = WIRE.build(
        "execute_reply", {"status": "ok", "execution_count": 4}, parent=first.header, identities=CLIENT
    )
    shell.on_kernel_replies(iter([reply]))
    assert parts.shell.sent[0] == reply
    assert parts.shell.messages()[1].content["execution_count"] == 4
    assert len(parts.command_cells) == 1


def test_a_silent_cell_answered_early_is_not_answered_twice() -> None:
    parts = Parts()
    parts.policy.silent_wait = 0.0
    shell = _shell(parts)
    silent = cell(silent=True)
    parts.submit(silent)
    parts.loop.fire("silent")
    parts.connect()
    reply = WIRE.build("execute_reply", {"status": "ok"}, parent=silent.message.header, identities=CLIENT)
    other = WIRE.build("comm_info_reply", {}, parent={"msg_id": "another"}, identities=CLIENT)
    shell.on_kernel_replies(iter([reply, other]))
    assert _reply_types(parts) == ["execute_reply", "comm_info_reply"]
    assert parts.status_of(silent) == "ok"
