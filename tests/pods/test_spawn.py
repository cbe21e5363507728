"""What both sides say of the program, as JSON and back, and what no other version says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.spawn import (
    MOST_SIDE,
    Ended,
    Failed,
    Spawn,
    Started,
    Terminal,
    ended_from_json,
    failed_from_json,
    size_from_bytes,
    size_to_bytes,
    spawn_from_json,
    started_from_json,
)
from bitfusion_pods.stream.frames import ProtocolError

bytes_ = st.integers(0, 255)
terminals = st.builds(
    Terminal,
    *[st.integers(0, MOST_SIDE)] * 2,
    st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple),
    st.lists(bytes_, max_size=32).map(tuple),
    st.booleans(),
)
texts = st.dictionaries(st.text(), st.text(), max_size=4)


@given(st.lists(st.text(), min_size=1, max_size=4), texts, st.text(), st.text(), texts)
def test_a_program_comes_as_it_was_sent(
    argv: list[str], environment: dict[str, str], cwd: str, folder: str, files: dict[str, str]
) -> None:
    asked = Spawn(tuple(argv), environment, cwd, folder, files)
    assert spawn_from_json(asked.to_json()) == asked


@given(st.none() | terminals, st.lists(st.integers(0, 2), max_size=3).map(tuple))
def test_its_terminal_comes_as_it_was_sent(terminal: Terminal | None, closed: tuple[int, ...]) -> None:
    asked = Spawn(("a",), {}, "", "", {}, pythons={"python3": "3.12"}).as_here(
        terminal, closed, ("launcher-1",)
    )
    assert spawn_from_json(asked.to_json()) == asked


@given(st.integers(0, 2 * MOST_SIDE), st.integers(0, 2 * MOST_SIDE))
def test_a_size_is_four_bytes(rows: int, columns: int) -> None:
    data = size_to_bytes(rows, columns)
    assert len(data) == 4
    assert size_from_bytes(data) == (min(rows, MOST_SIDE), min(columns, MOST_SIDE))


def test_what_is_missing_has_a_default_and_what_is_not_known_is_passed_over() -> None:
    assert spawn_from_json(b'{"argv": ["a"], "later": 1}') == Spawn(("a",), {}, "", "", {})
    said = spawn_from_json(b'{"argv": ["a"], "terminal": {"later": 1}}')
    assert said.terminal == Terminal()
    assert ended_from_json(b'{"status": -9, "later": []}') == Ended(-9)


@pytest.mark.parametrize(
    "started",
    [
        Started(),
        Started(has_terminal=True),
        Started(has_driver=False),
        Started(for_cpus_only=("torch 2+cpu",)),
    ],
)
def test_a_start_comes_as_it_was(started: Started) -> None:
    assert started_from_json(started.to_json()) == started


def test_of_a_start_what_is_missing_has_a_default_and_names_are_cut() -> None:
    assert started_from_json(b'{"later": 1}') == Started()
    said = started_from_json(Started(for_cpus_only=("x" * 5000,) * 100).to_json())
    assert said.for_cpus_only == ("x" * 200,) * 8


@pytest.mark.parametrize("ended", [Ended(0), Ended(-9, memory_ran_out=True), Ended(143, told_to=True)])
def test_an_end_comes_as_it_was(ended: Ended) -> None:
    assert ended_from_json(ended.to_json()) == ended


def test_a_long_reason_is_cut() -> None:
    assert failed_from_json(Failed("x" * 5000, 126).to_json()) == Failed("x" * 1000, 126)
    assert failed_from_json(Failed("x", 126, "y" * 5000).to_json()) == Failed("x", 126, "y" * 1000)
    assert failed_from_json(b'{"why": "x", "status": 1, "cure": 7}') == Failed("x", 1)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        *((spawn_from_json, data) for data in (b"", b"[]", b"{}", b'{"argv": ["a", 1]}', b'{"argv": "a"}')),
        (spawn_from_json, b'{"argv": ["a"], "environment": {"A": 1}}'),
        (spawn_from_json, b'{"argv": ["a"], "files": ["b"]}'),
        (spawn_from_json, b'{"argv": ["a"], "folder": null}'),
        (spawn_from_json, b"[" * 100_000),
        *(
            (spawn_from_json, b'{"argv": ["a"], "terminal": %s}' % value)
            for value in (
                *(b"[]", b"1", b'{"rows": "1"}', b'{"rows": -1}', b'{"columns": 65536}', b'{"rows": true}'),
                *(b'{"modes": [1, 2, 3, 4]}', b'{"modes": 1}', b'{"characters": [256]}'),
                b'{"characters": [%s]}' % b",".join([b"1"] * 65),
            )
        ),
        *((spawn_from_json, b'{"argv": ["a"], "closed": %s}' % value) for value in (b"[3]", b"{}", b"[-1]")),
        *((size_from_bytes, data) for data in (b"", b"123", b"12345")),
        *((ended_from_json, b'{"status": %d}' % status) for status in (256, -128, 10**30)),
        *((failed_from_json, b'{"why": "x", "status": %d}' % status) for status in (-1, 256)),
        *((started_from_json, data) for data in (b"", b"terminal", b'{"for_cpus_only": [1]}')),
        *((ended_from_json, data) for data in (b"\xff", b"{}", b'{"status": true}', b'{"status": "0"}')),
        *((failed_from_json, data) for data in (b"{}", b'{"why": "x"}', b'{"why": 1, "status": 2}')),
    ],
)
def test_what_is_something_else_is_refused(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(data)
