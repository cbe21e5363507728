"""What both sides say to each other: frames, as bytes and back. Pure.

A frame is its kind, the number of a channel (0: none) and a payload. Each kind has its longest payload: no
peer makes this side keep more. A kind that is not known here, of a newer version, is passed over.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

_HEAD = struct.Struct("!BII")  # kind, channel, length of the payload

LONGEST_DATA = 1 << 16
"""Bytes of one DATA frame."""


class Kind(IntEnum):
    """The numbers are the protocol: none is ever used again for something else."""

    SPAWN = 1
    """Run this program: JSON."""
    SPAWNED = 2
    """It runs."""
    FAILED = 3
    """It cannot be run: JSON, why and the status for that."""
    OPEN = 4
    """Somebody has connected to a mirrored socket of this name: a channel."""
    DATA = 5
    EOF = 6
    """Nothing more comes on the channel in this direction."""
    RESET = 7
    """The channel is over, in both directions."""
    CREDIT = 8
    """So many more bytes may be sent on the channel."""
    LISTEN = 9
    """A socket of this name has appeared in the folder: mirror it."""
    SIGNAL = 10
    """Send the program's process group the signal of this number."""
    EXIT = 11
    """The program has ended, and all that it has said has been sent: its status."""
    BYE = 12
    """The client leaves for good: nothing is resumed."""
    PING = 13
    """An ACK that also asks whether the peer lives."""
    ACK = 14
    """So many bytes have arrived since the session began."""
    UNLISTEN = 15
    """The socket of this name has gone."""
    WINDOW_SIZE = 16
    """Rows and columns of the terminal."""
    FILE = 17
    """A file of the folder is new, or another: its name, a zero byte, its content."""
    ENDED = 18
    """The program has ended, and there may be more of its output: its status, as in EXIT."""


_LONGEST = {
    Kind.SPAWN: 8 << 20,
    Kind.SPAWNED: 4096,
    Kind.FAILED: 4096,
    Kind.OPEN: 128,
    Kind.DATA: LONGEST_DATA,
    Kind.EOF: 0,
    Kind.RESET: 0,
    Kind.CREDIT: 4,
    Kind.LISTEN: 128,
    Kind.SIGNAL: 1,
    Kind.EXIT: 4096,
    Kind.BYE: 0,
    Kind.PING: 8,
    Kind.ACK: 8,
    Kind.UNLISTEN: 128,
    Kind.WINDOW_SIZE: 4,
    Kind.FILE: 1 << 16,
    Kind.ENDED: 4096,
}
_LONGEST_UNKNOWN = 1 << 16


class ProtocolError(Exception):
    """The peer has said what no peer of any version says: the session is over."""


if TYPE_CHECKING:

    class Frame(NamedTuple):
        """One frame as it came; its kind is known. What DATA brings is only there until the next `read`."""

        kind: Kind
        channel: int
        payload: bytes
else:
    Frame = namedtuple("Frame", ("kind", "channel", "payload"))


def head(kind: Kind, channel: int, length: int) -> bytes:
    """What stands before a payload of this length. Raises ValueError: no peer would read it."""
    if length > _LONGEST[kind]:
        raise ValueError(f"{length} bytes in a frame {kind.name}; it may have {_LONGEST[kind]}")
    return _HEAD.pack(kind, channel, length)


def count(number: int, size: int = 8) -> bytes:
    """A number as the payload of ACK and PING, or with `size` 4 of CREDIT."""
    return number.to_bytes(size, "big")


class FrameReader:
    """Makes frames of what comes, in pieces of any length.

    What has come of a DATA frame is a frame at once, as channels carry bytes and no messages: bulk is neither
    put together nor copied. All others are whole.
    """

    def __init__(self) -> None:
        self._begun = bytearray()
        """Of a frame that is not whole: its head, or more."""
        self._channel = self._left = 0
        """Of the DATA frame that is under way: so many bytes are still to come."""

    def read(self, chunk: bytes | memoryview) -> list[Frame]:
        """The frames that are there now. Raises ProtocolError, at the head of a frame that is too long."""
        data: bytes | bytearray | memoryview = chunk
        if self._begun:
            self._begun += chunk
            data = self._begun
        frames, at, size = [], 0, len(data)
        while at < size:
            if self._left:
                end = min(size, at + self._left)
                self._left -= end - at
                part = chunk[at:end] if data is chunk else _part(data, at, end)
                frames.append(Frame(Kind.DATA, self._channel, part))  # type: ignore[arg-type]  # channels take both
            elif size - at < _HEAD.size:
                break
            else:
                number, channel, length = _HEAD.unpack_from(data, at)
                kind, end = _known(number, length), at + _HEAD.size
                if kind is Kind.DATA:
                    self._channel, self._left = channel, length
                elif size < end + length:
                    break
                else:
                    end += length
                    if kind is not None:
                        frames.append(Frame(kind, channel, _part(data, at + _HEAD.size, end)))
            at = end
        if data is chunk:
            self._begun += chunk[at:]
        else:
            del self._begun[:at]
        return frames


def _part(data: bytes | bytearray | memoryview, start: int, end: int) -> bytes:
    return bytes(data[start:end])  # of bytes, all of them is the same object


def _known(number: int, length: int) -> Kind | None:
    """The kind of this number; None if a newer version has it. Raises ProtocolError."""
    kind = _KINDS.get(number)
    longest = _LONGEST_UNKNOWN if kind is None else _LONGEST[kind]
    if length > longest:
        name = number if kind is None else kind.name
        raise ProtocolError(f"a frame {name} of {length} bytes; it may have {longest}")
    return kind


_KINDS = {int(kind): kind for kind in Kind}
