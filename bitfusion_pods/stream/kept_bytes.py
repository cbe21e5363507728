"""What was sent and may have to be sent again: the bytes that the peer has not acknowledged. Pure.

Offsets count the bytes of a session from its begin. Everything before `base` has arrived; from there to
`sent` it was given to a connection; the rest waits.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_UNSENT = 1 << 18
"""Bytes that may wait before no more is taken from local sources."""

MOST_KEPT = 1 << 22
"""The same with those that were sent: a peer whose network is slow acknowledges late."""

MOST_EVER = MOST_KEPT + (1 << 24)
"""Bytes beyond which a peer lets answers heap up; the word that starts a program may have half of them."""


class AnotherHistory(Exception):
    """The peer says that it has received what was never sent, or has long been forgotten."""


class KeptBytes:
    """One direction of one session."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.base = 0
        self.sent = 0

    @property
    def end(self) -> int:
        """How many there are in all."""
        return self.base + len(self._kept)

    @property
    def unsent(self) -> int:
        """How many wait."""
        return self.end - self.sent

    @property
    def has_room(self) -> bool:
        """Whether local sources may be read for more."""
        return self.unsent < MOST_UNSENT and len(self._kept) < MOST_KEPT

    def put(self, *parts: bytes | memoryview) -> None:
        """Add what is to be sent. Raises AnotherHistory where the peer reads nothing of what it asks for."""
        for part in parts:
            self._kept += part
        if len(self._kept) > MOST_EVER:
            raise AnotherHistory("it does not read what it asks for")

    def give(self, take: Callable[[memoryview], int], most: int) -> None:
        """Give what is to be sent next to `take`, which says how much of it was; its errors are raised."""
        start = self.sent - self.base
        with memoryview(self._kept) as kept, kept[start : start + most] as piece:
            number = take(piece)
        self.was_sent(number)

    def was_sent(self, number: int) -> None:
        """A connection has taken so many of them."""
        if not 0 <= number <= self.unsent:
            raise ValueError(f"{number} of {self.unsent} bytes were sent")
        self.sent += number

    def acknowledge(self, offset: int) -> None:
        """The peer has what comes before this offset. Raises AnotherHistory.

        It may know that earlier than this side, whose TLS reports a write in several records only when all of
        them are out: no more is forgotten than is known to be sent, and the next word of the peer's does the
        rest.
        """
        if offset > self.end:
            raise AnotherHistory(f"it has received {offset} bytes of {self.end}")
        known = min(offset, self.sent) - self.base
        if known > 0:
            del self._kept[:known]
            self.base += known

    def resume_at(self, offset: int) -> None:
        """On a new connection: begin with this one. Raises AnotherHistory."""
        if not self.base <= offset <= self.end:
            raise AnotherHistory(f"it has received {offset} bytes, and {self.base} to {self.end} are kept")
        self.sent = offset
        self.acknowledge(offset)
