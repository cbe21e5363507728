"""The chunks of HTTP/1.1 in any pieces, which `http.client` reads only by waiting for more. Pure.

RFC 9112, section 7.1.
"""

from __future__ import annotations

LONGEST_LINE = 256
"""Bytes of a chunk's size with its extensions; Go writes no extensions."""


class NoChunks(ValueError):
    """These bytes are no chunks."""


class Chunks:
    """Of one answer: fed with what has come, it gives what that holds."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        """Bytes of the present chunk that are still to come, the line end behind them included."""
        self.over = False
        """Whether the last one has come."""

    def feed(self, data: bytes) -> bytes:
        """The body's bytes in it. Raises NoChunks."""
        found = []
        while data and not self.over:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                found.append(piece[: max(0, self._left - 2)])
                self._left -= len(piece)
                continue
            line, end, rest = (self._head + data).partition(b"\r\n")
            if not end:
                self._head, data = line, b""
                if len(line) > LONGEST_LINE:
                    raise NoChunks("the size of a chunk has no end")
                continue
            self._head, data = b"", rest
            size = _size(line)
            self.over = not size
            self._left = size + 2 if size else 0
        return b"".join(found)


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 8 or digits.strip(b"0123456789abcdefABCDEF"):
        raise NoChunks("no size")
    return int(digits, 16)
