"""The connections of an HTTP port: taken, bounded in number and time, handed to tornado once they speak.

Whoever reaches the port may open as many as he likes, and the API server's address is one like any other. So
a connection is of one of three kinds, each with a bound of its own: it has *asked nothing* yet, it is being
*served*, or it has been answered and is *kept* by its client. However many ask nothing, those that have asked
stay; of each kind the source that has most loses its oldest (`bitfusion_client/listening/crowd.py`). Until
its first words are whole a connection is a socket, nothing else; handshakes begin in turns of their sources.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from tornado.http1connection import HTTP1ConnectionParameters, HTTP1ServerConnection
from tornado.httputil import HTTPConnection, HTTPMessageDelegate, HTTPServerConnectionDelegate
from tornado.iostream import IOStream, SSLIOStream

from bitfusion_client.listening.acceptor import AT_ONCE, Acceptor, forget_at_close
from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW, Crowd, source_of
from bitfusion_client.listening.first_words import is_whole_head, is_whole_hello

HANDSHAKE_SECONDS = 5.0  # from the connection on
HEADER_SECONDS = 5.0  # for the first request without TLS, and for the end of a connection that was asked to
IDLE_SECONDS = 180.0  # longer than the apiserver keeps an idle connection (90 s): it closes, never we
LARGEST_HEADER = 16 << 10  # bytes; the apiserver's are below 1 KiB
QUIET_SECONDS = 10.0  # between two lines of the log about connections that were sent away

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Most:
    """Connections at once of each kind."""

    silent: int
    served: int
    kept: int


MANY = Most(512, 256, 256)  # the apiserver begins some hundred in a burst of pods, and keeps few
FEW = Most(64, 64, 64)  # probes and metrics


@dataclass(eq=False, slots=True)
class Connection:
    """One connection: what tornado gives back as the context of its requests.

    Attributes:
        source: Where it comes from, see `source_of`.
    """

    socket: socket.socket
    source: str
    kind: Crowd[Connection] | None = None  # None: it has ended
    timer: asyncio.TimerHandle | None = None  # until it has asked
    heard: int = 0  # bytes of its first words
    serving: HTTP1ServerConnection | None = None  # since it has said something

    def __str__(self) -> str:
        return self.source


class HttpConnections(HTTPServerConnectionDelegate):
    """Those of one port. Belongs to its asyncio loop.

    Args:
        begin_request: Makes what takes in a request of this connection; called before there is one.
        ssl_context: For a port that speaks TLS.
        largest_body: More is cut by tornado, bytes.
        most: Bounds.
        on_closed: Told why (`TOO_MANY`, `TOO_SLOW`) of each connection that is sent away.
    """

    def __init__(
        self,
        begin_request: Callable[[Connection, HTTPConnection], HTTPMessageDelegate],
        ssl_context: ssl.SSLContext | None,
        largest_body: int,
        most: Most,
        on_closed: Callable[[str], None],
    ) -> None:
        self._begin_request = begin_request
        self._ssl_context = ssl_context
        self._on_closed = on_closed
        self._silent: Crowd[Connection] = Crowd(most.silent)
        self._served: Crowd[Connection] = Crowd(most.served)
        self._kept: Crowd[Connection] = Crowd(most.kept)
        self._waiting: Crowd[Connection] = Crowd(most.silent)  # of the silent, those that have spoken
        self._acceptor: Acceptor | None = None
        self._parameters = HTTP1ConnectionParameters(
            header_timeout=IDLE_SECONDS, max_header_size=LARGEST_HEADER, max_body_size=largest_body
        )
        self._port = 0
        self._quiet_until, self._not_logged = 0.0, 0

    def listen(self, listening: socket.socket) -> None:
        """Take connections of this socket, from now on."""
        self._loop = asyncio.get_running_loop()
        self._port = listening.getsockname()[1]
        self._acceptor = Acceptor(listening, self._loop, self._take, self._make_room)

    def stop_listening(self) -> None:
        """Take no more."""
        if self._acceptor is not None:
            self._acceptor.close()

    async def close(self) -> None:
        """End all."""
        for connection in [*self._silent, *self._served, *self._kept]:
            self._over(connection)
            if connection.serving is None:
                self._loop.remove_reader(connection.socket.fileno())
                connection.socket.close()
            else:
                await connection.serving.close()

    # --- what its requests tell ------------------------------------------------------------------------

    def begins(self, connection: Connection) -> None:
        """The head of a request has come; the rest has a time limit of its own."""
        self._stop_timer(connection)

    def served(self, connection: Connection) -> None:
        """A whole request has come."""
        self._becomes(connection, self._served)

    def kept(self, connection: Connection) -> None:
        """It has been answered."""
        if connection.kind is None:
            return
        if not self.should_end(connection):
            self._becomes(connection, self._kept)
            return
        self._becomes(connection, self._silent)
        self._start_timer(connection, HEADER_SECONDS)

    def should_end(self, connection: Connection) -> bool:
        """Whether keeping it would cost its own source another: its client is asked to end this one."""
        return len(self._kept) >= self._kept.most and self._kept.largest_source == connection.source

    # --- from a socket to requests ---------------------------------------------------------------------

    def _take(self, connected: socket.socket, address: object) -> None:
        assert isinstance(address, tuple)
        connection = Connection(connected, source_of(address[0]))
        seconds = HEADER_SECONDS if self._ssl_context is None else HANDSHAKE_SECONDS
        self._start_timer(connection, seconds)
        self._loop.add_reader(connected.fileno(), self._speaks, connection)
        self._enter(connection, self._silent)

    def _speaks(self, connection: Connection) -> None:
        """Its first words stay in the system until they are whole, or no more of them comes."""
        connected = connection.socket
        try:
            said = connected.recv(LARGEST_HEADER, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            said = b""
        if len(said) > connection.heard and not self._is_whole(said):
            connection.heard = len(said)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(said) + 1)
            return
        self._loop.remove_reader(connected.fileno())
        if not said:
            self._over(connection)
            connected.close()
            return
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        if not self._waiting:
            self._loop.call_soon(self._begin_some)
        self._waiting.enter(connection, connection.source)

    def _is_whole(self, said: bytes) -> bool:
        whole = is_whole_head(said) if self._ssl_context is None else is_whole_hello(said)
        return whole or len(said) >= LARGEST_HEADER

    def _begin_some(self) -> None:
        # A handshake takes a millisecond, and others wait for all of these. Half as many as are taken: of a
        # burst of the apiserver's no more pile up than there may be, were it a thousand.
        for _ in range(AT_ONCE // 2):
            connection = self._waiting.next_turn()
            if connection is None:
                return
            self._begin(connection)
        if self._waiting:
            self._loop.call_soon(self._begin_some)

    def _begin(self, connection: Connection) -> None:
        try:
            stream = self._stream(connection.socket)
        except OSError:  # it has ended meanwhile; an SSLError is one
            self._over(connection)
            connection.socket.close()
            return
        connection.serving = HTTP1ServerConnection(stream, self._parameters, connection)
        connection.serving.start_serving(self)
        if isinstance(stream, SSLIOStream):
            stream.wait_for_handshake().add_done_callback(lambda done: self._has_shaken(connection, done))

    def _stream(self, connected: socket.socket) -> IOStream:
        if self._ssl_context is None:
            return IOStream(connected)
        return SSLIOStream(
            self._ssl_context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
        )

    def _has_shaken(self, connection: Connection, done: asyncio.Future[SSLIOStream]) -> None:
        failed = done.cancelled() or done.exception() is not None
        if not failed:  # the apiserver opens some in reserve, and may use one at the moment we close it
            self._stop_timer(connection)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Tornado's call before each request."""
        assert isinstance(server_conn, HTTP1ServerConnection)
        assert isinstance(server_conn.context, Connection)
        return self._begin_request(server_conn.context, request_conn)

    def on_close(self, server_conn: object) -> None:
        """Tornado's call at the end of a connection, after all others."""
        assert isinstance(server_conn, HTTP1ServerConnection)
        assert isinstance(server_conn.context, Connection)
        self._over(server_conn.context)

    # --- bounds ----------------------------------------------------------------------------------------

    def _becomes(self, connection: Connection, kind: Crowd[Connection]) -> None:
        if connection.kind is not None:
            connection.kind.leave(connection, connection.source)
            self._enter(connection, kind)

    def _enter(self, connection: Connection, kind: Crowd[Connection]) -> None:
        connection.kind = kind
        gone = kind.enter(connection, connection.source)
        if gone is not None:
            self._send_away(gone, TOO_MANY)

    def _make_room(self) -> bool:
        gone = self._silent.give_up_one() or self._kept.give_up_one()
        if gone is not None:
            self._send_away(gone, TOO_MANY)
        return gone is not None

    def _send_away(self, connection: Connection, why: str) -> None:
        has_asked = connection.kind is not self._silent
        self._over(connection)
        self._tell(connection, why)
        if connection.serving is None:
            self._loop.remove_reader(connection.socket.fileno())
            forget_at_close(connection.socket)
            connection.socket.close()
            return
        stream = connection.serving.stream
        if not has_asked and not stream.closed():  # who has asked may still be reading the answer
            assert isinstance(stream, IOStream)
            forget_at_close(stream.socket)
        stream.close()

    def _over(self, connection: Connection) -> None:
        self._stop_timer(connection)
        self._waiting.leave(connection, connection.source)
        if connection.kind is not None:
            connection.kind.leave(connection, connection.source)
            connection.kind = None

    def _start_timer(self, connection: Connection, seconds: float) -> None:
        self._stop_timer(connection)
        connection.timer = self._loop.call_later(seconds, self._send_away, connection, TOO_SLOW)

    def _stop_timer(self, connection: Connection) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None

    def _tell(self, connection: Connection, why: str) -> None:
        self._on_closed(why)
        now = self._loop.time()
        if now < self._quiet_until:
            self._not_logged += 1
            return
        log.warning(
            "connection rejected",
            extra={
                "port": self._port,
                "source": connection.source,
                "reason": why,
                "not_logged": self._not_logged,
            },
        )
        self._quiet_until, self._not_logged = now + QUIET_SECONDS, 0
