"""Frames as bytes and back, in pieces of any length, and what no peer may send."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.stream.frames import LONGEST_DATA, Frame, FrameReader, Kind, ProtocolError, count
from tests.pods.frame_bytes import encode
from tests.pods.stream.sides import joined

LONGEST = {
    Kind.SPAWN: 8 << 20,
    Kind.DATA: LONGEST_DATA,
    Kind.OPEN: 128,
    Kind.EOF: 0,
    Kind.CREDIT: 4,
    Kind.ACK: 8,
}

frames = st.tuples(
    st.sampled_from([Kind.DATA, Kind.SPAWN]), st.integers(0, 2**32 - 1), st.binary(max_size=300)
)


def head(kind: int, length: int) -> bytes:
    return struct.pack("!BII", kind, 0, length)


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 400), min_size=1))
def test_what_was_sent_comes_in_whatever_pieces(
    sent: list[tuple[Kind, int, bytes]], pieces: list[int]
) -> None:
    data = b"".join(encode(*frame) for frame in sent)
    reader, came, at = FrameReader(), [], 0
    while at < len(data):
        for piece in pieces:
            came += reader.read(data[at : at + piece])
            at += piece
    assert joined(came) == joined([Frame(*frame) for frame in sent if frame[0] is not Kind.DATA or frame[2]])
    assert all(len(frame.payload) > 0 for frame in came if frame.kind is Kind.DATA)


def test_what_has_come_of_bulk_is_passed_on_before_the_rest_and_is_not_copied() -> None:
    reader, data = FrameReader(), encode(Kind.DATA, 3, bytes(range(200)))
    assert reader.read(data[:5]) == []
    assert reader.read(data[5:50]) == [(Kind.DATA, 3, bytes(range(41)))]
    piece = data[50:150]
    (frame,) = reader.read(piece)
    assert frame.payload is piece
    assert reader.read(data[150:] + encode(Kind.EOF, 3)) == [
        (Kind.DATA, 3, bytes(range(141, 200))),
        (Kind.EOF, 3, b""),
    ]


@pytest.mark.parametrize(("kind", "longest"), LONGEST.items())
def test_each_kind_has_its_longest_payload(kind: Kind, longest: int) -> None:
    payload = bytes(longest)
    assert FrameReader().read(encode(kind, 3, payload)) == [(kind, 3, payload)]
    with pytest.raises(
        ValueError, match=f"{longest + 1} bytes in a frame {kind.name}; it may have {longest}"
    ):
        encode(kind, 3, payload + b"x")
    with pytest.raises(ProtocolError, match=f"a frame {kind.name} of {longest + 1} bytes"):
        FrameReader().read(head(kind, longest + 1))


def test_a_frame_that_is_too_long_is_refused_at_its_head_whatever_came_before() -> None:
    reader = FrameReader()
    assert reader.read(encode(Kind.BYE)) == [(Kind.BYE, 0, b"")]
    with pytest.raises(ProtocolError):
        reader.read(encode(Kind.BYE) + head(Kind.DATA, 2**32 - 1))


def test_a_kind_of_a_newer_version_is_passed_over_up_to_a_bound() -> None:
    reader = FrameReader()
    newer = head(200, 65536) + bytes(65536)
    assert reader.read(newer + encode(Kind.EOF, 4)) == [(Kind.EOF, 4, b"")]
    with pytest.raises(ProtocolError, match="a frame 200 of 65537 bytes"):
        reader.read(head(200, 65537))


@given(st.binary(max_size=4000))
def test_noise_is_frames_or_an_error_and_never_kept_beyond_a_frame(noise: bytes) -> None:
    reader = FrameReader()
    try:
        came = reader.read(noise)
    except ProtocolError:
        return
    assert all(len(frame.payload) <= 8 << 20 for frame in came)


def test_counts_are_eight_bytes_and_credit_four() -> None:
    assert (count(258), count(258, 4)) == (bytes(6) + b"\1\2", b"\0\0\1\2")
    encode(Kind.ACK, 0, count(2**63))
    encode(Kind.CREDIT, 5, count(1 << 20, 4))


def test_the_numbers_are_the_protocol() -> None:
    assert [(kind.name, int(kind)) for kind in Kind] == [
        *(("SPAWN", 1), ("SPAWNED", 2), ("FAILED", 3), ("OPEN", 4), ("DATA", 5), ("EOF", 6), ("RESET", 7)),
        *(("CREDIT", 8), ("LISTEN", 9), ("SIGNAL", 10), ("EXIT", 11), ("BYE", 12), ("PING", 13), ("ACK", 14)),
        *(("UNLISTEN", 15), ("WINDOW_SIZE", 16), ("FILE", 17), ("ENDED", 18)),
    ]
