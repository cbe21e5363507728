"""A few paths over plain HTTP: ``/metrics`` of the pool's service, and ``/healthz`` and so on of the plugin.

With the standard library alone, a tenth of tornado's memory, for a request in fifteen seconds. One request a
connection, each with a time limit as a whole, and few at once: clients that say nothing, or little by little,
or read nothing, keep nobody else from an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus

from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW, Crowd, source_of

REQUEST_S = 5.0  # for all of a request to arrive, and for its answer to be taken
LARGEST_REQUEST = 16 << 10
MOST_CONNECTIONS = 64  # that have not asked yet, and as many that are being answered
BACKLOG = 512  # so many wait in the system, and are taken at once
PLAIN = "text/plain; charset=utf-8"

Answer = tuple[HTTPStatus, str, bytes]  # with the content's type


class PlainHttp:
    """The listener. Made, started and stopped by a process; belongs to its loop.

    Args:
        answers: By path, what makes the answer to a GET, at once.
        on_closed: Told why (`TOO_MANY`, `TOO_SLOW`) of each connection that is sent away.
    """

    def __init__(
        self, answers: Mapping[str, Callable[[], Answer]], on_closed: Callable[[str], None] = lambda why: None
    ) -> None:
        self._answers = answers
        self._on_closed = on_closed
        self._server: asyncio.Server | None = None
        self._silent: Crowd[_Connection] = Crowd(MOST_CONNECTIONS)
        self._answered: Crowd[_Connection] = Crowd(MOST_CONNECTIONS)

    async def start(self, address: str, port: int) -> int:
        """Listen; the port. Raises OSError."""
        host = None if address == "::" else address  # None: all addresses of IPv6 and IPv4
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Close the listener; answers under way end with the loop."""
        if self._server is not None:
            self._server.close()

    def connected(self, connection: _Connection) -> None:
        """A new one, which has asked nothing yet."""
        self._enter(connection, self._silent)

    def over(self, connection: _Connection) -> None:
        """It has ended, in whatever way."""
        for crowd in (self._silent, self._answered):
            crowd.leave(connection, connection.source)

    def send_away(self, connection: _Connection, why: str) -> None:
        """End it at once."""
        self._on_closed(why)
        connection.transport.abort()

    def answer(self, connection: _Connection, request: bytes) -> bytes:
        """What it is answered, and with it the connection ends."""
        self._silent.leave(connection, connection.source)
        self._enter(connection, self._answered)
        method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        make = self._answers.get(rest.partition(" ")[0].partition("?")[0])
        if method not in ("GET", "HEAD"):
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, b"GET only\n"
        elif make is None:
            *others, last = self._answers
            there = f"{', '.join(others)} and {last}" if others else last
            status, kind, body = HTTPStatus.NOT_FOUND, PLAIN, f"only {there} can be found here\n".encode()
        else:
            status, kind, body = make()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)

    def _enter(self, connection: _Connection, crowd: Crowd[_Connection]) -> None:
        gone = crowd.enter(connection, connection.source)
        if gone is not None:
            self.send_away(gone, TOO_MANY)


class _Connection(asyncio.Protocol):
    """One connection, by asyncio's calls."""

    transport: asyncio.Transport
    source: str

    def __init__(self, server: PlainHttp) -> None:
        self._server = server
        self._request = b""
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.source = source_of(transport.get_extra_info("peername")[0])
        self._limit = asyncio.get_running_loop().call_later(REQUEST_S, self._server.send_away, self, TOO_SLOW)
        self._server.connected(self)

    def data_received(self, data: bytes) -> None:
        self._request += data
        if len(self._request) > LARGEST_REQUEST:
            self.transport.abort()
        elif b"\r\n\r\n" in self._request:
            self.transport.write(self._server.answer(self, self._request))
            self.transport.close()  # once it is written; nothing more is read

    def connection_lost(self, error: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._server.over(self)
