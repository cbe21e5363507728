"""The one source of the published state: when it tells, to whom, and what stands in the file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.kernel_state import states
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.proxy import state_board
from bitfusion_kernel.proxy.kernel_state import Asked
from bitfusion_kernel.proxy.state_board import StateBoard
from tests.kernel.proxy.parts import Parts, cell
from tests.support.kernel_state_schema import FILE_SCHEMA, check


class Board:
    """A board over parts, a folder, one watcher, and a clock of the test's."""

    def __init__(self, folder: Path) -> None:
        self.parts = Parts()
        self.folder = folder
        self.kept = False
        self.next: Asked | None = Asked(GpuRequest(2))
        self.asked_next = 0
        self.told: list[dict[str, Any]] = []
        self.board = StateBoard(
            self.parts.loop,
            self.parts.lifecycle,
            self.parts.sent,
            self._asked_next,
            lambda: self.kept,
            "x.ipynb",
            "5e",
        )
        self.parts.lifecycle.on_change = self.board.touch

    def _asked_next(self) -> Asked | None:
        self.asked_next += 1
        return self.next

    def watch(self) -> None:
        """One who is told."""
        self.board.watch(self, self.told.append)

    def settle(self) -> None:
        """The time comes at which changes are told."""
        self.parts.loop.fire("state")

    @property
    def pending(self) -> bool:
        return "state" in self.parts.loop.timers

    @property
    def file(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / states.FILE_NAME).read_text())
        check(told, FILE_SCHEMA)
        return told

    @property
    def names(self) -> list[str]:
        return [state["state"] for state in self.told]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_a_watcher_is_told_the_state_now_and_then_each_change(board: Board) -> None:
    board.watch()
    first = cell("1")
    board.parts.submit(first)
    board.settle()
    board.parts.connect()
    board.settle()
    board.parts.kernel_replies(first)
    board.settle()
    assert board.names == ["none", "waiting", "running", "idle"]
    for state in board.told:
        check(state)
    assert board.told[0]["request"]["gpus"] == 2  # the next cell's
    assert board.told[1]["request"]["gpus"] == 1  # what was asked for
    assert board.told[2]["lease"] is not None
    assert board.told[3]["idle_since"] == board.told[3]["since"] >= board.told[2]["since"]
    assert time.time() - 60 < board.told[3]["asked_at"] <= board.told[3]["granted_at"] <= time.time()


def test_what_changes_within_a_moment_is_told_once_and_what_is_as_before_not_at_all(board: Board) -> None:
    board.parts.connect()
    board.watch()
    for _ in range(3):
        board.parts.submit(short := cell("1"))
        board.parts.kernel_replies(short)
    time.sleep(0.002)  # times are told in milliseconds
    board.parts.submit(last := cell("1"))
    board.parts.kernel_replies(last)
    board.settle()
    assert board.names == ["idle", "idle"]  # since the last one
    board.board.touch()
    board.settle()
    assert len(board.told) == 2


def test_ten_times_a_second_at_most(board: Board) -> None:
    board.watch()
    board.board.touch()
    board.settle()
    began = time.monotonic()
    board.parts.lifecycle.request()
    when, _ = board.parts.loop.timers["state"]
    assert when >= began + state_board.TELL_EVERY - 0.05
    board.board.touch()
    assert board.parts.loop.timers["state"][0] == when  # a flood of changes puts it off no further


def test_who_does_not_watch_any_more_is_told_nothing(board: Board) -> None:
    board.watch()
    board.board.forget(board)
    board.parts.lifecycle.request()
    board.settle()
    assert board.names == ["none"]
    board.board.forget(board)


def test_settings_are_not_read_for_nobody(board: Board) -> None:
    """What the next cell asks for stands in settings, whose reading takes time."""
    board.board.write_in(str(board.folder))
    board.settle()
    assert (board.file["state"], board.asked_next) == ("none", 0)
    board.next = None
    assert board.board.look()["request"] is None


def test_the_file_tells_a_new_state_at_once_and_a_new_time_once_a_second(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_board, "WRITE_EVERY", 600.0)
    board.board.write_in(str(board.folder))
    board.settle()
    board.parts.connect()
    board.settle()
    assert board.file["state"] == "idle"
    before = board.file
    board.parts.submit(short := cell("1"))
    board.parts.kernel_replies(short)
    time.sleep(0.002)
    board.settle()
    assert board.file == before  # idle again: written later
    board.parts.loop.fire("state file")  # too soon
    assert board.file == before
    monkeypatch.setattr(state_board, "WRITE_EVERY", 0.0)
    board.parts.loop.fire("state file")
    assert board.file["idle_since"] > before["idle_since"]
    assert board.parts.loop.timers.keys().isdisjoint({"state", "state file"})
    assert board.file["notebook"] == "x.ipynb"
    assert [path.name for path in board.folder.iterdir()] == [states.FILE_NAME]
    assert (board.folder / states.FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("kept", "state"), [(False, "releasing"), (True, "parked")])
def test_at_the_end_of_the_proxy_the_last_state_is_told_at_once_and_no_other(
    board: Board, kept: bool, state: str
) -> None:
    board.board.write_in(str(board.folder))
    board.parts.connect()
    board.watch()
    board.kept = kept
    board.parts.lifecycle.end(0)
    board.board.close()
    assert (board.names[-1], board.file["state"]) == (state, state)
    (board.folder / states.FILE_NAME).unlink()
    board.board.touch()
    board.board.close()
    assert board.parts.loop.timers.keys().isdisjoint({"state", "state file"})
    assert list(board.folder.iterdir()) == []


def test_a_folder_that_is_gone_or_full_harms_nothing_and_the_next_change_is_tried_again(board: Board) -> None:
    missing = board.folder / "gone"
    board.board.write_in(str(missing))
    board.settle()
    assert not missing.exists()
    missing.mkdir()
    board.parts.lifecycle.request()
    board.settle()
    assert json.loads((missing / states.FILE_NAME).read_text())["state"] == "waiting"
    board.board.write_in(str(board.folder))  # made anew, elsewhere
    board.settle()
    assert board.file["state"] == "waiting"


def test_work_that_goes_on_is_no_change(board: Board) -> None:
    board.parts.connect()
    board.parts.submit(cell("1"))
    board.settle()
    board.parts.submit(cell("2"), cell("3"))
    assert not board.pending


def test_when_an_idle_kernel_gives_its_gpus_back_is_told_while_it_is_idle(board: Board) -> None:
    at: float | None = 2e9
    board.board.idle_release_at = lambda: at
    board.watch()
    board.parts.connect()
    board.settle()
    running = cell("1")
    board.parts.submit(running)
    board.settle()
    board.parts.kernel_replies(running)
    at = None
    board.settle()
    assert board.names == ["none", "idle", "running", "idle"]
    assert [state["idle_release_at"] for state in board.told] == [None, 2e9, None, None]
    for state in board.told:
        check(state)
