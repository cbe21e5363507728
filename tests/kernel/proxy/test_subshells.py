"""Cells in subshells: in order with those of their own shell, beside those of the others."""

from __future__ import annotations

import time

import pytest

from bitfusion_client.errors import KernelDied
from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.proxy.parts import STAY, Parts, message

MAIN: str | None = None
ASIDE, THIRD = "a", "b"


def _cell(
    subshell: object = MAIN, *, commands: list[str] | None = None, silent: bool = False
) -> QueuedRequest:
    header = {} if subshell is MAIN else {"subshell_id": subshell}
    request = message("execute_request", header=header, code="1", silent=silent)
    return QueuedRequest(request, time.monotonic(), commands)


@pytest.fixture
def parts() -> Parts:
    """The kernel runs."""
    made = Parts()
    made.connect()
    return made


def _in_kernel(parts: Parts, *requests: QueuedRequest) -> list[bool]:
    return [request.message.id in parts.in_kernel() for request in requests]


def test_a_cell_in_a_subshell_does_not_wait_for_the_main_shells_commands(parts: Parts) -> None:
    commands, behind, aside, third = _cell(commands=[STAY]), _cell(), _cell(ASIDE), _cell(THIRD)
    parts.submit(commands, behind, aside, third)
    assert _in_kernel(parts, behind, aside, third) == [False, True, True]
    parts.command_cells[0].finish()
    assert _in_kernel(parts, behind) == [True]


def test_commands_in_a_subshell_do_not_wait_for_the_main_shells_cell(parts: Parts) -> None:
    running, commands, aside = _cell(), _cell(commands=["status"]), _cell(ASIDE, commands=["status"])
    parts.submit(running, commands, aside)
    assert (parts.status_of(commands), parts.status_of(aside)) == (None, "ok")
    parts.kernel_replies(running)
    assert parts.status_of(commands) == "ok"


def test_commands_of_two_shells_run_beside_each_other(parts: Parts) -> None:
    main, aside, behind = (_cell(MAIN, commands=[STAY]), _cell(ASIDE, commands=[STAY]), _cell(ASIDE))
    parts.submit(main, aside, behind)
    assert len(parts.command_cells) == 2
    parts.command_cells[1].finish()
    assert (parts.status_of(main), parts.status_of(aside)) == (None, "ok")
    assert _in_kernel(parts, behind) == [True]


def test_commands_in_a_subshell_wait_for_its_own_cell(parts: Parts) -> None:
    running, commands, behind = _cell(ASIDE), _cell(ASIDE, commands=["status"]), _cell(ASIDE)
    parts.submit(running, commands, behind)
    assert parts.status_of(commands) is None
    assert _in_kernel(parts, behind) == [False]
    parts.kernel_replies(running)
    assert parts.status_of(commands) == "ok"
    assert _in_kernel(parts, behind) == [True]


@pytest.mark.parametrize("failing", [MAIN, ASIDE])
def test_an_error_aborts_what_waits_in_its_own_shell(parts: Parts, failing: str | None) -> None:
    other = ASIDE if failing is MAIN else MAIN
    requests = {shell: (_cell(shell), _cell(shell, commands=[STAY]), _cell(shell)) for shell in (MAIN, ASIDE)}
    for shell in (MAIN, ASIDE):
        parts.submit(*requests[shell])
    parts.kernel_replies(requests[failing][0], status="error")
    assert [parts.status_of(each) for each in requests[failing][1:]] == ["aborted", "aborted"]
    assert [parts.status_of(each) for each in requests[other][1:]] == [None, None]


def test_a_full_inbox_stops_all_shells_and_loses_nothing(parts: Parts) -> None:
    requests = [_cell(shell) for shell in (MAIN, ASIDE, MAIN, ASIDE)]
    parts.kernel_takes = 1
    parts.submit(*requests)
    assert sum(_in_kernel(parts, *requests)) == 1
    parts.kernel_takes = 10
    parts.scheduler.advance()
    assert all(_in_kernel(parts, *requests))


def test_a_subshells_messages_are_relayed_beside_the_main_shells_commands(parts: Parts) -> None:
    shell = parts.make_shell()
    shell.watch()
    parts.submit(_cell(commands=[STAY]))

    def arrive(message_type: str, subshell: str | None) -> Message:
        request = message(message_type, header={"subshell_id": subshell}, code="1")
        parts.shell.incoming.append(request.frames)
        parts.loop.handlers[parts.shell]()
        return request

    requests = [
        arrive(kind, shell) for kind in ("complete_request", "execute_request") for shell in (MAIN, ASIDE)
    ]
    assert parts.in_kernel() == [requests[1].id, requests[3].id]


def test_the_cell_that_ran_in_each_shell_says_why_the_kernel_died(parts: Parts) -> None:
    requests = [_cell(), _cell(), _cell(ASIDE, silent=True), _cell(ASIDE), _cell(ASIDE), _cell(THIRD)]
    commands = _cell("d", commands=[STAY])
    parts.submit(*requests, commands)
    parts.scheduler.show_death(KernelDied("", "the kernel process was killed by SIGKILL"))
    shown = [parts.published(request) for request in requests]
    assert shown == [["error"], [], [], ["error"], [], ["error"]]
    assert parts.published(commands) == ["busy", "error"]
    assert parts.shell.sent == []


@pytest.mark.parametrize("strange", ["", 0, [], {}, False, "x" * 10_000])
def test_an_id_that_no_kernel_gives_is_a_shell_of_its_own(parts: Parts, strange: object) -> None:
    running, aside, behind = _cell(), _cell(strange, commands=[STAY]), _cell(strange)
    parts.submit(running, aside, behind)
    assert len(parts.command_cells) == 1
    assert _in_kernel(parts, running, behind) == [True, False]


def test_before_there_is_a_kernel_all_cells_wait_for_it_and_keep_their_order() -> None:
    parts = Parts()
    requests = [_cell(shell) for shell in (MAIN, ASIDE, MAIN, ASIDE)]
    parts.submit(*requests)
    assert parts.display.cell is requests[0]
    parts.connect()
    for shell in (0, 1):
        ids = [request.message.id for request in requests[shell::2]]
        assert [each for each in parts.in_kernel() if each in ids] == ids


def test_one_created_before_there_is_a_kernel_takes_no_gpu() -> None:
    parts = Parts()
    parts.make_control().watch()
    request = message("create_subshell_request")
    parts.control.incoming.append(request.frames)
    parts.loop.handlers[parts.control]()
    early = parts.control.messages()[-1].content["subshell_id"]
    assert parts.lifecycle.state is KernelState.NOT_REQUESTED
    aside = _cell(early)
    parts.submit(aside, _cell())
    assert parts.display.cell is aside
