"""The states of a kernel in Jupyter's log."""

from __future__ import annotations

import json
import select
from pathlib import Path

import pytest

from bitfusion_kernel.proxy.state_log import StateLog, line
from tests.kernel.proxy.parts import cell
from tests.kernel.proxy.test_state_board import Board
from tests.support.kernel_state_schema import check

HEAD = ("time", "level", "logger", "message")


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_each_new_state_is_a_line_of_json_and_a_changed_field_is_none(board: Board) -> None:
    lines: list[str] = []
    StateLog(board.board, lines.append)
    first = cell("1")
    board.parts.submit(first)
    board.settle()
    board.parts.connect()
    board.settle()
    board.parts.kernel_replies(first)
    board.settle()
    board.parts.submit(short := cell("1"))
    board.parts.kernel_replies(short)
    board.settle()  # idle since another time
    told = [json.loads(each) for each in lines]
    assert [each["state"] for each in told] == ["none", "waiting", "running", "idle"]
    for each in told:
        assert tuple(each)[: len(HEAD)] == HEAD
        check({name: value for name, value in each.items() if name not in HEAD})


def test_a_line_is_never_cut_in_the_middle_of_its_json(board: Board) -> None:
    state = board.board.look()
    assert json.loads(line(state, 1795720944.0625))["time"] == "2026-11-26T19:22:24.062Z"
    device = {"id": 0, "name": "x" * 60}
    told = json.loads(line(state | {"lease": {"devices": [device] * 100}}, 0.0))
    assert (told["lease"], told["queue"], told["state"]) == (None, None, "none")
    assert len(json.dumps(told)) < select.PIPE_BUF
