"""Chunks of HTTP/1.1, in whatever pieces they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.api.chunks import LONGEST_LINE, Chunks, NoChunks


def encoded(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(1, 9), max_size=60))
def test_any_pieces_give_the_same(parts: list[bytes], sizes: list[int]) -> None:
    data, chunks, found = encoded(parts), Chunks(), b""
    for size in [*sizes, len(data)]:
        found += chunks.feed(data[:size])
        data = data[size:]
    assert found == b"".join(parts)
    assert chunks.over


def test_a_chunk_is_given_before_the_line_end_behind_it() -> None:
    chunks = Chunks()
    assert chunks.feed(b"3\r\nabc") == b"abc"
    assert chunks.feed(b"\r\n") == b""
    assert not chunks.over


@pytest.mark.parametrize("data", [b"\r\n", b"x\r\n", b"-1\r\n", b"123456789\r\n", b"1" * (LONGEST_LINE + 1)])
def test_what_is_no_size_is_an_error(data: bytes) -> None:
    with pytest.raises(NoChunks):
        Chunks().feed(data)


@given(st.binary(max_size=300))
def test_no_bytes_are_another_error(data: bytes) -> None:
    try:
        Chunks().feed(data)
    except NoChunks:
        pass
