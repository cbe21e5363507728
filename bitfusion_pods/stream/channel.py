"""One channel: bytes between local descriptors on both sides, in both directions or in one.

What comes waits here until the local reader takes it, and only then the peer gets credit for more: a reader
that stands still makes the writer on the other side stand still, and nothing grows.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream.frames import LONGEST_DATA, Kind, ProtocolError, count

if TYPE_CHECKING:
    from bitfusion_pods.stream.link import Link

WINDOW = 1 << 20
"""Bytes that may be under way, or wait here, in each direction."""

_GIVE_CREDIT_AT = WINDOW // 4
_READ = 4 * LONGEST_DATA
_PIECES = 16


class Channel:
    """The owner polls `source` while `wants_read`, `sink` while `wants_write`, and drops it when `is_over`.

    Args:
        link: Carries it.
        number: The same on both sides.
        source: Where its bytes come from here; None in a channel that only brings some.
        sink: Where they go; None likewise. The same as `source`: a socket, or a
            terminal's.
        shared: Whether other processes use these descriptors, as those of a terminal: then they stay as they
            are, and a sink that blocks is written in pieces that never do once `poll` has said so.
    """

    def __init__(
        self, link: Link, number: int, source: int | None, sink: int | None, *, shared: bool = False
    ) -> None:
        self.number = number
        self.source = source
        self.sink = sink
        self._link = link
        self._shared = shared
        self.failed = 0
        """The error number of the write that has ended it; 0: none has."""
        self.written = 0
        """How many bytes the sink has taken."""
        self.paused = False
        """Whether the source is not to be read now, as a terminal that another program has."""
        self._credit = WINDOW
        self._waiting = _Waiting()
        self._consumed = 0
        self._discards = False
        self._sent_eof = source is None
        self._got_eof = sink is None
        self._open: set[int] = set()
        self._own(source, sink)

    @classmethod
    def pending(cls, link: Link, number: int) -> Channel:
        """One whose connection is still to be made: what comes for it waits."""
        made = cls(link, number, None, None)
        made._sent_eof = made._got_eof = False
        return made

    def connect(self, fd: int) -> None:
        """The connection of a pending one."""
        self.source = self.sink = fd
        self._own(fd)
        self._end_sink()

    def _own(self, *fds: int | None) -> None:
        self._open |= {fd for fd in fds if fd is not None}
        if not self._shared:
            for fd in self._open:
                os.set_blocking(fd, False)

    # -- what the owner polls for ------------------------------------------------------------------

    @property
    def wants_read(self) -> bool:
        """Whether the source may be read now."""
        return not self._sent_eof and self._credit > 0 and not self.paused

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the sink."""
        return self._waiting.size > 0

    @property
    def source_ended(self) -> bool:
        """Whether nothing more goes to the peer."""
        return self._sent_eof

    @property
    def is_over(self) -> bool:
        """Whether both directions have ended, and all has been written."""
        return self._sent_eof and self._got_eof and not self._waiting.size

    # -- from here to there ------------------------------------------------------------------------

    def read(self) -> bool:
        """Pass on what can be read from the source; whether something could."""
        assert self.source is not None
        try:
            data = os.read(self.source, min(_READ, self._credit))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # of a terminal whose other end is gone, or a connection that was reset
            data = b""
        if data:
            self._credit -= len(data)
            view = memoryview(data)  # bulk is copied once, into what is kept
            for at in range(0, len(data), LONGEST_DATA):
                self._link.put(Kind.DATA, self.number, view[at : at + LONGEST_DATA])
            return True
        self._sent_eof = True
        self._got_eof |= self._discards
        self._link.put(Kind.EOF, self.number)
        return False

    def add_credit(self, more: int) -> None:
        """The peer has written so much. Raises ProtocolError."""
        if self._credit + more > WINDOW:
            raise ProtocolError(f"credit of {more} bytes that were never sent")
        self._credit += more

    # -- from there to here ------------------------------------------------------------------------

    def take(self, data: bytes | memoryview) -> None:
        """What the peer has read. Raises ProtocolError where it had no credit for that."""
        if self._got_eof or self._waiting.size + self._consumed + len(data) > WINDOW:
            raise ProtocolError("bytes without credit")
        if self._discards:
            self._consumed += len(data)  # the peer gets no credit for them, and will stop
        else:
            self._waiting.add(data)

    def take_end(self) -> None:
        """Nothing more comes."""
        self._got_eof = True
        self._end_sink()

    def write(self) -> bool:
        """Write what the sink takes; False if nobody reads it any more: the channel is over."""
        assert self.sink is not None
        try:
            if self._shared and os.get_blocking(self.sink):
                written = self._write_what_never_blocks(self.sink)
            else:
                written = self._waiting.write(self.sink)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError as error:
            self.failed = error.errno or errno.EIO
            return self._has_no_reader()
        self._consumed += written
        self.written += written
        if self._consumed >= _GIVE_CREDIT_AT:
            self._link.put(Kind.CREDIT, self.number, count(self._consumed, 4))
            self._consumed = 0
        self._end_sink()
        return True

    def _has_no_reader(self) -> bool:
        """What it has said before it left is still read; false where it says nothing."""
        self._waiting.clear()
        if self.sink != self.source or self._sent_eof:
            return False
        self._discards, self.sink = True, None
        return True

    def _write_what_never_blocks(self, sink: int) -> int:
        """As much as `poll` allows, piece by piece; how much that was. Raises OSError."""
        poll, written = select.poll(), 0
        poll.register(sink, select.POLLOUT)
        for _ in range(_PIECES):
            if not self._waiting.size or not poll.poll(0):
                break
            written += self._waiting.write(sink, select.PIPE_BUF)
        return written

    def _end_sink(self) -> None:
        """Tell the local reader of the end, once it has all."""
        if not self._got_eof or self._waiting.size or self.sink is None:
            return
        if self.sink == self.source:
            if not stat.S_ISSOCK(os.fstat(self.sink).st_mode):
                return  # a terminal has one end for both directions
            with socket.socket(fileno=os.dup(self.sink)) as connection:
                try:
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    return  # it has left
        else:
            self._close(self.sink)
        self.sink = None

    # -- its end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what is open here."""
        for fd in list(self._open):
            self._close(fd)
        self.source = self.sink = None
        self._sent_eof = self._got_eof = True
        self._waiting.clear()

    def _close(self, fd: int) -> None:
        self._open.discard(fd)
        try:
            os.close(fd)
        except OSError:
            pass


class _Waiting:
    """Bytes that wait to be written, in one buffer that stays: fresh memory for each piece costs more."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray())
        self._start = self._end = 0

    @property
    def size(self) -> int:
        """How many bytes wait."""
        return self._end - self._start

    def add(self, data: bytes | memoryview) -> None:
        if self._end + len(data) > len(self._buffer):
            self._make_room(self.size + len(data))
        self._buffer[self._end : self._end + len(data)] = data
        self._end += len(data)

    def _make_room(self, wanted: int) -> None:
        kept, old = self.size, self._buffer
        if wanted > len(old):
            self._buffer = memoryview(bytearray(max(wanted, min(2 * len(old), WINDOW))))
        self._buffer[:kept] = old[self._start : self._end]
        self._start, self._end = 0, kept

    def write(self, fd: int, most: int = WINDOW) -> int:
        """What the descriptor takes, at most so much. Raises OSError."""
        written = os.write(fd, self._buffer[self._start : self._end][:most])
        self._start += written
        if self._start == self._end:
            self._start = self._end = 0
        return written

    def clear(self) -> None:
        self._buffer = memoryview(bytearray())
        self._start = self._end = 0
