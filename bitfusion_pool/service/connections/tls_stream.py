"""One connection over TLS, within the event loop: nothing here waits, and each call does little.

OpenSSL works on buffers in memory, of which a call fills one at most. Reading from the socket itself, it
would go on for as long as records come that say nothing.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from bitfusion_client.listening.acceptor import forget_at_close
from bitfusion_client.listening.first_words import is_whole_hello
from bitfusion_pool.service.connections.route import announced_segment
from bitfusion_pool.service.connections.stream import READ_AT_ONCE

_LINGER_S = 1.0  # so long the other side may take to read our last words
_LINGER_KNOWN_S = 10.0  # the same where somebody asks whether it has gone
_MOST_LINGERING = 64  # whom nobody knows
_MOST_LINGERING_KNOWN = 1024
_MOST_DISCARDED = 1 << 20  # bytes of one connection


class TlsStream:
    """The server's side of one connection; a stream as `LocalStream` is once `shake_hands` has said so.

    OpenSSL's part of it is made with the first step of the handshake: many connections never come so far.

    Attributes:
        announced: The maximum segment size that the other end announced; see `route`.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, linger: Linger) -> None:
        connected.setblocking(False)
        self.announced = announced_segment(connected)
        self._socket = connected
        self._linger = linger
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._has_begun = False  # there is `_tls`
        self._hello = b""  # the beginning of the handshake, until there is enough of it
        self._encrypted = b""  # what of `_outgoing` the socket has not taken yet
        self._in_flight = 0  # so much of what `send` was given is in it
        self._early = b""  # came together with the end of the handshake
        self._has_ended = False

    def fileno(self) -> int:
        """See `LocalStream`."""
        return self._socket.fileno()

    def hear(self) -> bool:
        """Take in what has come; whether a handshake can begin: before, it costs nobody any time.

        Raises OSError: the connection has ended.
        """
        self._hello += self._received()
        return is_whole_hello(self._hello)

    def shake_hands(self) -> bool:
        """Go on with the handshake, as far as what has come allows; whether it is over.

        Raises:
            ssl.SSLError: The other side does not speak TLS, or not one that we do.
            OSError: The connection has ended, or its other side reads nothing.
        """
        if not self._has_begun:
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._has_begun = True
        data, self._hello = self._hello or self._received(), b""
        self._incoming.write(data)
        is_over = False
        try:
            self._tls.do_handshake()
            is_over = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._flush()  # also what OpenSSL says of an error
        if is_over:
            self._early = self._decrypted()
        return is_over

    @property
    def has_more(self) -> bool:
        """See `LocalStream`."""
        return bool(self._early) or self._has_ended

    def receive(self) -> bytes:
        """See `LocalStream`."""
        if self._early:
            data, self._early = self._early, b""
            return data
        if self._has_ended:
            return b""
        data = self._socket.recv(READ_AT_ONCE)
        if not data:
            return b""
        self._incoming.write(data)
        data = self._decrypted()
        if not data and not self._has_ended:
            raise BlockingIOError
        return data

    def send(self, data: bytes, fd: int) -> int:
        """See `LocalStream`; no descriptor can be sent to another machine."""
        if fd >= 0:
            raise ValueError("a descriptor for another machine")
        if not self._in_flight:
            self._in_flight = self._tls.write(data[:READ_AT_ONCE])
        self._flush()  # raises where called again, with the same data, until all is sent
        sent, self._in_flight = self._in_flight, 0
        return sent

    def close(self, on_gone: Callable[[], None] | None = None) -> None:
        """See `LocalStream`."""
        if not self._has_begun:
            self.reset()
            return
        try:
            self._tls.unwrap()  # says that this is the end, and does not wait for the answer
        except (OSError, ValueError):
            pass
        try:
            self._flush()
        except OSError:  # it is broken, which says nothing of the other side
            pass
        self._linger.close(self._socket, on_gone)

    def reset(self) -> None:
        """End the connection at once, of one that has said nothing."""
        forget_at_close(self._socket)
        self._socket.close()

    def refuse(self, words: bytes) -> None:
        """Say something to who does not speak TLS, and close."""
        try:
            self._socket.send(words)
        except OSError:
            pass
        self._linger.close(self._socket)

    def _received(self) -> bytes:
        data = self._socket.recv(READ_AT_ONCE)
        if not data:
            raise ConnectionResetError("the other side hung up before it was made")
        return data

    def _decrypted(self) -> bytes:
        found = []
        try:
            while True:
                data = self._tls.read(READ_AT_ONCE)
                if not data:
                    self._has_ended = True
                    break
                found.append(data)
        except ssl.SSLWantReadError:
            pass
        return b"".join(found)

    def _flush(self) -> None:
        self._encrypted += self._outgoing.read()
        while self._encrypted:
            self._encrypted = self._encrypted[self._socket.send(self._encrypted) :]


@dataclass(slots=True)
class _Lingering:
    """A connection that is closed soon; so many bytes of it may still be discarded."""

    timer: asyncio.TimerHandle
    on_gone: Callable[[], None] | None
    left: int


class Linger:
    """Closes TCP connections so that the other side can read what was sent last.

    Closing one on which something is unread resets it, and a reset takes back words that are on their way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sockets: dict[socket.socket, _Lingering] = {}

    def close(self, connected: socket.socket, on_gone: Callable[[], None] | None = None) -> None:
        """Close it, now or soon; `on_gone` is called if the other side ends it in order meanwhile."""
        try:
            connected.shutdown(socket.SHUT_WR)
        except OSError:  # it is broken
            connected.close()
            return
        most, seconds = _MOST_LINGERING, _LINGER_S
        if on_gone is not None:
            most, seconds = _MOST_LINGERING_KNOWN, _LINGER_KNOWN_S
        if len(self._sockets) >= most:
            connected.close()
            return
        timer = self._loop.call_later(seconds, self._end, connected)
        self._sockets[connected] = _Lingering(timer, on_gone, _MOST_DISCARDED)
        self._loop.add_reader(connected.fileno(), self._discard, connected)

    def _discard(self, connected: socket.socket) -> None:
        lingering = self._sockets[connected]
        try:
            data = connected.recv(READ_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it is broken, which says nothing of the other side
            self._end(connected)
            return
        lingering.left -= len(data)
        if not data and lingering.on_gone is not None:
            lingering.on_gone()
        if not data or lingering.left <= 0:
            self._end(connected)

    def _end(self, connected: socket.socket) -> None:
        self._sockets.pop(connected).timer.cancel()
        self._loop.remove_reader(connected.fileno())
        connected.close()
