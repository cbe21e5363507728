"""Lines out of a stream: whatever the pieces, and never more than the longest line kept."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pool.messages.lines import LineBuffer, LineTooLong


@given(
    st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b" ")), max_size=6),
    st.lists(st.integers(0, 130), max_size=6),
)
def test_the_lines_are_the_same_however_the_stream_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    buffer = LineBuffer(20)
    found = [line for begin, end in itertools.pairwise(places) for line in buffer.feed(stream[begin:end])]
    assert found == lines


@pytest.mark.parametrize("data", [b"x" * 11, b"x" * 11 + b"\n", b"ok\n" + b"x" * 11])
def test_a_line_that_is_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(LineTooLong, match="a line of more than 10 bytes"):
        LineBuffer(10).feed(data)


def test_a_line_that_grows_too_long_is_refused_before_it_ends() -> None:
    buffer = LineBuffer(10)
    for _ in range(10):
        buffer.feed(b"x")
    with pytest.raises(LineTooLong):
        buffer.feed(b"x")
