"""The wait for the budget of a pod, as the waiting cell and others are told of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bitfusion_client.errors import ClientFailed, WaitTimedOut
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu import time_limits
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.gpu.pod_wait import PodStart, PodWait
from bitfusion_kernel.gpu.waiting_notice import render
from bitfusion_kernel.pod.account import Account
from bitfusion_kernel.pod.take_turn import TAKE_TURN
from bitfusion_kernel.pod.turn_lines import (
    format_not_counted,
    format_taken,
    format_timed_out,
    format_turn,
    parse_turn_line,
)
from bitfusion_kernel.pod.turns import Entry, Turn
from tests.kernel.pod.fake_pod import FakePod

HOLDS = Entry(1, "a; b <x>.ipynb", GpuRequest(1, 0.5), False, True, 0.0)
WAITS = Entry(2, "c.ipynb", GpuRequest(1), True, False, 0.0)
TURN = Turn(None, 2, 3, (HOLDS,), (WAITS,))


def waiting(*lines: str, left: bool = True) -> Acquisition:
    acquisition = Acquisition(1, GpuRequest(1), 0.0)
    acquisition.pod_wait = PodWait(takes_what_is_left=left)
    for line in lines:
        assert acquisition.on_line(line, 0.0)
    return acquisition


def test_the_notice_names_notebooks_the_position_and_what_to_do() -> None:
    shown = render(waiting(format_turn(TURN, 0.0)), 7.0, 0.0, 7.0)
    lines = shown["text/plain"].splitlines()
    assert lines[0].startswith("Asked for what is left of this pod's budget at ")
    assert " · waited 7 s · as of " in lines[0]
    assert lines[1:3] == [
        "Notebooks of this pod hold its budget · position 2 of 3 among those that wait",
        "Held by:",
    ]
    assert lines[3].startswith("  a, b <x>.ipynb (1 GPU × 50 %, since ")
    assert lines[4] == "Before you in the queue:"
    assert lines[5].startswith("  c.ipynb (what is left, since ")
    assert lines[6:] == [
        "It runs as soon as such a kernel is shut down (in JupyterLab: Kernel, Shut Down Kernel).",
        "To stop waiting, interrupt the kernel. The notebook is not lost.",
    ]
    assert "a, b &lt;x&gt;.ipynb" in shown["text/html"]
    assert "It runs as soon as such a kernel is shut down" in shown["text/html"]


def test_a_chosen_size_is_named() -> None:
    acquisition = waiting(format_turn(TURN, 0.0), left=False)
    assert acquisition.asked_for == "1 GPU"
    assert render(acquisition, 7.0, 0.0, 7.0)["text/plain"].startswith("Asked for 1 GPU at ")


def test_one_that_wants_more_than_is_left_is_told_how_to_take_that() -> None:
    turn = Turn(None, 1, 1, (HOLDS,), (), GpuRequest(1, 0.5, None, (("a", "b"),)))
    shown = render(waiting(format_turn(turn, 0.0), left=False), 7.0, 0.0, 7.0)["text/plain"]
    why = "Why: only 1 GPU × 50 % is left, and `%bitfusion request -n 1 -p 0.5` would ask for that"
    assert why in shown.splitlines()


def test_a_wait_that_was_too_long_is_told_as_that_for_the_pool_is() -> None:
    acquisition = waiting(format_turn(TURN, 0.0), format_timed_out(1800))
    acquisition.wrapper_status = 1
    error = acquisition.why_it_ended()
    assert isinstance(error, WaitTimedOut)
    assert "Answer: timed out after 30m waiting for the budget of this pod" in error.user_message


def test_when_the_turn_has_come_the_pools_queue_follows_in_the_same_notice() -> None:
    acquisition = waiting(format_turn(TURN, 0.0), format_taken(GpuRequest(1, 0.5), 0.0))
    assert acquisition.request == GpuRequest(1, 0.5)
    assert acquisition.asked_for == "1 GPU × 50 %"
    assert acquisition.queue is None
    assert (
        "No position in the queue has been reported yet" in render(acquisition, 7.0, 0.0, 7.0)["text/plain"]
    )
    acquisition.on_line("[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 1 of 2; held by bob: x", 0.0)
    shown = render(acquisition, 7.0, 0.0, 7.0)["text/plain"]
    assert "Position 1 of 2 in the queue" in shown
    assert "of this pod" not in shown
    assert len(acquisition.log) == 3


def test_without_an_account_it_goes_on_and_keeps_why() -> None:
    acquisition = waiting(format_not_counted("/tmp/x:\nNo space", 0.0))
    assert not acquisition.waits_for_pod
    assert acquisition.pod_wait is not None
    assert acquisition.pod_wait.not_counted == "/tmp/x: No space"
    assert acquisition.request == GpuRequest(1)


def test_tools_with_time_limits_are_told_what_is_waited_for() -> None:
    told = time_limits.start_waits(waiting(format_turn(TURN, 0.0)))
    assert told.startswith(
        "the kernel is ready when it has what is left of this pod's budget (position 2 of 3; held by a, b <x>"
    )


def test_a_line_of_the_clients_is_never_taken_for_one_of_these() -> None:
    for line in ("", "x", "[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 1 of 2", "Error: no"):
        assert parse_turn_line(line) is None
    for damaged in ("Taking of the budget of this pod: -n x", "Waiting for the budget of this pod: soon"):
        assert parse_turn_line(f"[INFO] 2026-11-21T00:00:00Z {damaged}") is None


def test_once_it_is_over_nothing_of_the_program_can_begin_it_again() -> None:
    acquisition = waiting(format_taken(GpuRequest(1, 0.5), 0.0))
    acquisition.on_line(format_taken(GpuRequest(1, 0.1), 0.0), 0.0)
    assert acquisition.request == GpuRequest(1, 0.5)


def test_a_client_that_cannot_be_started_is_the_error_of_the_cell() -> None:
    acquisition = waiting("Error: cannot start /x: No such file or directory")
    acquisition.wrapper_status = 127
    error = acquisition.why_it_ended()
    assert isinstance(error, ClientFailed)
    assert "cannot start /x: No such file or directory" in error.user_message


def test_the_wrapper_is_the_program_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    fake = FakePod(tmp_path)
    start = PodStart(fake.pod, GpuRequest(1), "", {"XDG_RUNTIME_DIR": str(tmp_path)}, takes_what_is_left=True)
    command = start.command(["run"], "/x/bitfusion", ["launcher", "kernel"])
    assert command[:5] == [sys.executable, "-I", "-S", TAKE_TURN, start.entry]
    assert '"a kernel without a notebook"' in command[5]
    assert command[6:] == ["--", "/x/bitfusion", "launcher", "kernel"]


def test_where_there_can_be_no_account_bitfusion_run_is_started_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("")
    taken = Account(str(tmp_path / "taken"))
    monkeypatch.setattr("bitfusion_kernel.pod.account._places", lambda *_: [taken])
    start = PodStart(FakePod(tmp_path).pod, GpuRequest(1), "x", {}, takes_what_is_left=True)
    assert start.command(["run"], "/x/bitfusion", ["kernel"]) == ["run"]
    assert start.entry == ""
    assert start.wait.over
    assert start.wait.not_counted == f"{taken.folder}: this is not a folder of yours"
