"""Frames over one TLS connection after another: what was under way when one was lost is sent again.

Whoever owns it polls `connection`, calls `read` when something can be read and `flush` when something can be
written, and `beat` once a second; each raises `Lost` when the connection is over. Then it dials again, or
waits to be dialled, has the new connection greeted with `greet`, and gives it to `attach`.
"""

from __future__ import annotations

import ssl
import time

from bitfusion_pods.stream.frames import Frame, FrameReader, Kind, ProtocolError, count, head
from bitfusion_pods.stream.greeting import Greeting
from bitfusion_pods.stream.kept_bytes import AnotherHistory, KeptBytes
from bitfusion_pods.stream.tls_connection import TlsConnection

PING_EVERY = 2.0
"""Seconds without a word of one's own."""
DEAD_AFTER = 10.0
"""Seconds without a word of the peer's."""

_PIECE = 1 << 16
_MOST_READ = 1 << 18
_ACK_EVERY = 1 << 19


class Lost(Exception):
    """The TCP connection is over; the session may be resumed. `closed`: by the peer, in good order."""

    def __init__(self, why: str, *, closed: bool = False) -> None:
        super().__init__(why)
        self.closed = closed


class Link:
    """One session, of this 16-byte name."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self.connection: TlsConnection | None = None
        self.received = 0
        """Bytes of frames that have arrived, for the next greeting."""
        self.connections = 0
        """How many there have been."""
        self._kept = KeptBytes()
        self._reader = FrameReader()
        self._acknowledged = 0
        self._heard_at = self._asked_at = 0.0
        self._over: Lost | None = None
        self._is_asked = False

    # -- one connection after another --------------------------------------------------------------

    def greet(self) -> Greeting:
        """What to say on a new connection. Another ends: nothing may arrive on it after this word."""
        self.detach()
        return Greeting(self.session, self.received)

    def attach(self, connection: TlsConnection, own: Greeting, theirs: Greeting) -> None:
        """Go on with this connection, on which these greetings were exchanged.

        Raises:
            AnotherHistory: They don't fit what has been sent, or has arrived on yet another one since.
        """
        if own.received != self.received:
            raise AnotherHistory("another connection was faster")
        self._kept.resume_at(theirs.received)
        self.detach()
        self.connection, self._over = connection, None
        self.connections += 1
        self._heard_at = self._asked_at = time.monotonic()
        self._acknowledged = self.received

    def detach(self) -> None:
        """Close the connection, if there is one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    # -- bytes -------------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """Whether to poll for writing."""
        return self._kept.unsent > 0 or (self.connection is not None and self.connection.wants_write)

    @property
    def has_room(self) -> bool:
        """Whether more may be put: else local sources wait, and with them the program."""
        return self._kept.has_room

    def put(self, kind: Kind, channel: int = 0, payload: bytes | memoryview = b"") -> None:
        """Send a frame, now or on a later connection. Ask `has_room` before bulk.

        Raises:
            ProtocolError: The session is over: the peer lets answers heap up.
        """
        try:
            self._kept.put(head(kind, channel, len(payload)), payload)
        except AnotherHistory as error:
            raise ProtocolError(str(error)) from None

    def flush(self) -> None:
        """Send what the connection takes now. Raises Lost."""
        while self.connection is not None and self.wants_write:
            try:
                if self._kept.unsent:
                    self._kept.give(self.connection.send, _PIECE)
                else:
                    self.connection.flush()
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            except OSError as error:
                raise Lost(_words(error)) from None

    def read(self) -> list[Frame]:
        """The frames that have come, but those about the link itself.

        Raises:
            Lost: The connection is over; only after all frames that came before.
            ProtocolError: The session is over.
        """
        if self._over is not None:
            raise self._over
        frames: list[Frame] = []
        chunk = self._receive()
        if chunk:
            self._heard_at = time.monotonic()
            self.received += len(chunk)
            frames = self._reader.read(chunk)
        if self._over is not None and not frames:
            raise self._over
        others = [frame for frame in frames if not self._take(frame)]
        if self._is_asked or self.received - self._acknowledged >= _ACK_EVERY:
            self._is_asked = False
            self._acknowledge(Kind.ACK)  # once, however often it has asked
        return others

    def _receive(self) -> bytes | memoryview:
        """What has come; nothing where `_over` says so, or where it is too early."""
        if self.connection is None:
            return b""
        try:
            chunk = self.connection.recv(_MOST_READ)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        except OSError as error:
            self._over = Lost(_words(error))
            return b""
        if not chunk:
            closed = self.connection.was_closed
            why = "the other side has closed the connection" if closed else "the connection was reset"
            self._over = Lost(why, closed=closed)
        return chunk

    def _take(self, frame: Frame) -> bool:
        """Whether a frame was about the link."""
        if frame.kind not in (Kind.ACK, Kind.PING):
            return False
        try:
            self._kept.acknowledge(int.from_bytes(frame.payload, "big"))
        except AnotherHistory as error:
            raise ProtocolError(str(error)) from None
        self._is_asked |= frame.kind is Kind.PING
        return True

    def beat(self) -> None:
        """Say that this side lives, and what has arrived. Raises Lost where the peer says nothing."""
        if self.connection is None:
            return
        now = time.monotonic()
        if now - self._heard_at > DEAD_AFTER:
            raise Lost(f"nothing was heard for {DEAD_AFTER:.0f} s")
        if now - self._asked_at > PING_EVERY:
            self._asked_at = now
            self._acknowledge(Kind.PING)

    def _acknowledge(self, kind: Kind) -> None:
        self._acknowledged = self.received
        self.put(kind, 0, count(self.received))


def _words(error: OSError) -> str:
    return error.strerror or str(error)
