"""TLS over a TCP connection that never blocks, read and written in large pieces.

`ssl.SSLSocket` asks the system for each record of 16 KiB, in and out: of bulk, a third of its CPU time.
"""

from __future__ import annotations

import socket
import ssl

RECORD = 1 << 14
"""Bytes that TLS gives at once, at most."""

_TCP_CLOSE_WAIT = 8  # linux/tcp_states.h
_READ = 1 << 18
_WRITE = 1 << 17


class TlsConnection:
    """One side. Its methods raise `ssl.SSLWantReadError` and `ssl.SSLWantWriteError`, as those of `ssl` do.

    Args:
        raw: Connected; owned from here on.
        context: From `tls.context`.
        server: Whether this is the side that was dialled.

    Raises:
        OSError: It is over already, as after a reset.
    """

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, *, server: bool) -> None:
        raw.setblocking(False)
        try:
            raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            pass
        self.raw = raw
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=server)
        self._buffer = memoryview(bytearray(RECORD))  # a stranger gets no more
        self._leaves = memoryview(b"")
        self.has_more = False
        """Whether to call `recv` again before the next poll."""
        self.was_closed = False
        """Whether the peer has closed the connection, or its kernel when it died; not by a reset."""

    def fileno(self) -> int:
        """What to poll."""
        return self.raw.fileno()

    def close(self) -> None:
        """Close the connection, without a word."""
        self.raw.close()

    @property
    def wants_write(self) -> bool:
        """Whether something that `send` has taken waits until the socket can be written."""
        return bool(self._leaves) or self._goes.pending > 0

    def do_handshake(self) -> None:
        """Go on with the handshake; done when nothing is raised."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._fetch()
            except ssl.SSLError:
                self._flush_if_possible()  # why, for the peer
                raise
            else:
                break
        self._buffer = memoryview(bytearray(_READ))
        self.flush()

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Take some of it, unless what was taken before still waits."""
        self.flush()
        taken = self._tls.write(data[:_WRITE])
        self._flush_if_possible()
        return taken

    def flush(self) -> None:
        """Write what was taken."""
        while self.wants_write:
            if not self._leaves:
                self._leaves = memoryview(self._goes.read())
            try:
                self._leaves = self._leaves[self.raw.send(self._leaves) :]
            except BlockingIOError:
                raise ssl.SSLWantWriteError from None

    def _flush_if_possible(self) -> None:
        try:
            self.flush()
        except (ssl.SSLWantWriteError, OSError):
            pass  # it is met again

    def recv(self, most: int) -> memoryview:
        """What has come, in this connection's own buffer: it is there until the next call.

        Empty at the end, of which `was_closed` tells the kind.
        """
        got, most, is_end = 0, min(most, len(self._buffer)), False
        while got < most and not is_end:
            try:
                # with a buffer it says how many; typeshed has one answer for both
                number: int = self._tls.read(most - got, self._buffer[got:most])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                if got:
                    break
                self.has_more = False
                self._flush_if_possible()
                self._fetch()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                is_end = True
            else:
                got += number
                is_end = number == 0
        self.has_more = got == most or (is_end and got > 0)
        return self._buffer[:got]

    def _fetch(self) -> None:
        try:
            number = self.raw.recv_into(self._buffer)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if number:
            self._came.write(self._buffer[:number])
        else:
            state = self.raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            self.was_closed = state == _TCP_CLOSE_WAIT
            self._came.write_eof()
