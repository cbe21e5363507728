"""Cuts a stream of bytes into lines of limited length."""

from __future__ import annotations


class LineTooLong(ValueError):
    """More bytes came without a line end than a line may have. Nothing more is read of that stream."""


class LineBuffer:
    """The bytes of one connection that are no whole line yet; never more than `longest`.

    Both ends feed it what they read from their socket, in pieces of any size.
    """

    __slots__ = ("_longest", "_rest")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their line ends.

        Raises:
            LineTooLong: A line has more than `longest` bytes; lines before it in `data` are lost.
        """
        first, *others = data.split(b"\n")
        if not others:
            # joined only as often as the limit allows: a sender of single bytes costs no more than others
            self._rest += first
            self._check(self._rest)
            return []
        lines = [self._rest + first, *others[:-1]]
        self._rest = others[-1]
        for line in (*lines, self._rest):
            self._check(line)
        return lines

    def _check(self, line: bytes) -> None:
        if len(line) > self._longest:
            raise LineTooLong(f"a line of more than {self._longest} bytes")
