"""Whose turn it is among the kernels of a container."""

from __future__ import annotations

import json

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod.budget import Budget
from bitfusion_kernel.pod.turns import NAMELESS, Entry, entry_from_json, turn_of

BUDGET = Budget(GpuRequest(1), 100)


def entry(number: int, share: float | None = None, *, left: bool = False, holds: bool = False) -> Entry:
    return Entry(number, f"{number}.ipynb", GpuRequest(1, share), left, holds, 0.0)


def holding(number: int, share: float | None = None) -> Entry:
    return entry(number, share, holds=True)


@pytest.mark.parametrize(
    ("mine", "others", "gets", "position"),
    [
        (entry(1, left=True), [], GpuRequest(1), 1),
        (entry(2, left=True), [holding(1, 0.5)], GpuRequest(1, 0.5), 1),
        (entry(2, left=True), [holding(1)], None, 1),
        (entry(2, 0.5), [holding(1, 0.5)], GpuRequest(1, 0.5), 1),
        (entry(2, 0.6), [holding(1, 0.5)], None, 1),
        # one that wants less waits behind one that wants more, or that might wait for ever
        (entry(3, 0.1), [holding(1, 0.5), entry(2, 0.6)], None, 2),
        (entry(3, left=True), [holding(1, 0.5), entry(2, 0.6)], None, 2),
        (entry(2, 0.5), [holding(1, 0.5), entry(3, 0.6)], GpuRequest(1, 0.5), 1),
        (entry(4, left=True), [holding(1, 0.25), holding(2, 0.25), holding(3, 0.25)], GpuRequest(1, 0.25), 1),
    ],
)
def test_turns(mine: Entry, others: list[Entry], gets: GpuRequest | None, position: int) -> None:
    turn = turn_of(BUDGET, mine, others)
    assert (turn.request, turn.position) == (gets, position)
    assert turn.left is None or turn.position == 1
    assert turn.length == 1 + sum(not other.holds for other in others)
    assert [other.number for other in turn.holders] == [other.number for other in others if other.holds]


def test_an_entry_is_read_as_it_was_written() -> None:
    written = Entry(3, "digits.ipynb", GpuRequest(2, 0.5), True, False, 12.5)
    assert entry_from_json(written.to_json()) == written


def test_an_entry_is_short_whatever_is_asked_for() -> None:
    servers = tuple(f"host-{number}:1" for number in range(5000))
    written = Entry(3, "digits.ipynb", GpuRequest(2, 0.5, servers=servers), True, False, 12.5).to_json()
    assert len(written) < 200
    found = entry_from_json(written)
    assert found is not None
    assert found.request == GpuRequest(2, 0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"number": "1"},
        {"number": True},
        {"since": "x"},
        {"since": True},
        {"since": -1},
        {"since": 1e300},
        {"request": {}, "notebook": None, "holds": None},
        {"request": {"gpus": 0}},
        {"request": []},
        {"request": None},
    ],
)
def test_a_damaged_entry_is_none(change: dict[str, object]) -> None:
    values = json.loads(entry(1).to_json())
    found = entry_from_json(json.dumps(values | change))
    assert found is None or found.request == GpuRequest(1)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"x"', "[" * 16000, "{}"])
def test_what_is_no_entry_is_none(text: str) -> None:
    assert entry_from_json(text) is None


def test_a_name_is_one_line_of_bounded_length() -> None:
    values = json.loads(entry(1).to_json())
    found = entry_from_json(json.dumps(values | {"notebook": "a\n\x1b[31m" + "b" * 500}))
    assert found is not None
    assert len(found.notebook) == 80
    assert found.notebook.isprintable()
    nameless = entry_from_json(json.dumps(values | {"notebook": ""}))
    assert nameless is not None
    assert nameless.notebook == NAMELESS


def test_one_that_waits_for_what_is_left_says_so() -> None:
    assert "1.ipynb (what is left, since " in entry(1, left=True).describe(0.0)
    taken = Entry(1, "1.ipynb", GpuRequest(1, 0.5), True, True, 0.0)
    assert "1.ipynb (1 GPU × 50 %, since " in taken.describe(0.0)


def test_one_that_wants_more_than_is_left_is_told_what_is() -> None:
    assert turn_of(BUDGET, entry(2, 0.75), [holding(1, 0.5)]).left == GpuRequest(1, 0.5)
    assert turn_of(BUDGET, entry(2, 0.75), [holding(1)]).left is None
