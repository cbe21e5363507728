"""The HTTP/1.1 server of admission (TLS) and monitoring (plain): fixed paths, limits, graceful shutdown.

Straight on tornado's connections (`http_connections.py`), without its web framework: a review costs half as
much, and a body that is too large gets an answer instead of a cut connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http.client import responses

from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPOutputError,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import StreamClosedError

from bitfusion_client.listening.acceptor import BACKLOG
from bitfusion_cluster.program.http_connections import MANY, Connection, HttpConnections, Most
from bitfusion_cluster.program.program import port_not_opened

MIB = 1 << 20
LARGEST_BODY = 7 * MIB  # an UPDATE's review carries the object twice; the apiserver takes 3 MiB of one
LARGEST_IN_FLIGHT = 16 * MIB  # all bodies that are being received and answered; the apiserver's are far below
LARGEST_DISCARDED = 64 * MIB  # read to its end to be able to say 413; beyond it the connection is cut
REQUEST_SECONDS = 5.0  # for all of a request to arrive, and for its answer; the apiserver waits as long

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. `body` of a problem is one line of plain text."""

    code: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def _has_ipv6() -> bool:
    # socket.has_ipv6 says what Python was built with, not what the kernel was started with
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def plain(code: int, text: str) -> Response:
    """An answer of one line."""
    return Response(code, text.encode(errors="backslashreplace") + b"\n")


@dataclass(frozen=True, slots=True)
class Route:
    """One path: the method it answers, the type its body must have, and what answers it."""

    method: str
    handler: Callable[[bytes], Response | Awaitable[Response]]
    content_type: str = ""


class HttpService:
    """Serves `routes` (by path; the query is ignored). One asyncio loop; start and stop are called in it.

    `on_problem` is told the status of every request that got no further than here, `on_closed` why a
    connection was sent away; `most` is how many there may be.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        ssl_context: ssl.SSLContext | None = None,
        on_problem: Callable[[int], None] = lambda status: None,
        on_closed: Callable[[str], None] = lambda why: None,
        most: Most = MANY,
    ) -> None:
        self.routes = routes
        self.on_problem = on_problem
        self.in_flight = 0
        self.held = 0  # bytes of the bodies in flight
        self.draining = False
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself only keeps weak references
        self.connections = HttpConnections(
            lambda connection, request: _Exchange(self, connection, request),
            ssl_context,
            LARGEST_DISCARDED,
            most,
            on_closed,
        )

    async def start(self, address: str, port: int) -> int:
        """Listen at an IP address; returns the port, a free one if `port` was 0. Raises OSError.

        ``::`` listens to IPv4 too, where the machine can, and to IPv4 alone where it has no IPv6.
        """
        if address == "::" and not _has_ipv6():
            address = "0.0.0.0"
        # Not tornado's bind_sockets: it leaves its socket open when the port is taken.
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        both = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server((address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
        self.connections.listen(listening)
        bound: int = listening.getsockname()[1]
        return bound

    async def open(self, address: str, port: int, option: str) -> int:
        """`start` for a command's listener, whose port is chosen by `option`. Raises CannotStart."""
        try:
            return await self.start(address, port)
        except OSError as error:
            raise port_not_opened(error, address, port, option) from None

    def drain(self) -> None:
        """From now on each answer asks its client to use another connection. Everything is still served."""
        self.draining = True

    async def stop(self, grace_s: float) -> None:
        """Take no more connections, answer what has been asked, at most `grace_s` seconds, close the rest."""
        self.drain()
        self.connections.stop_listening()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        quiet = 0
        # Twice: a request may lie in the socket, sent but not read yet.
        while quiet < 2 and loop.time() < deadline:
            await asyncio.sleep(0.02)
            quiet = 0 if self.in_flight else quiet + 1
        await self.connections.close()

    def start_task(self, work: Coroutine[object, object, None]) -> None:
        """Run one answer beside the others."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Exchange(HTTPMessageDelegate):
    """One request and its answer."""

    __slots__ = (
        *("_answered", "_chunks", "_connection", "_handler", "_held", "_problem", "_request", "_service"),
        "_timer",
    )

    def __init__(self, service: HttpService, connection: Connection, request: HTTPConnection) -> None:
        self._service = service
        self._connection = connection
        self._request = request
        self._handler: Callable[[bytes], Response | Awaitable[Response]] | None = None
        self._problem: Response | None = None
        self._chunks: list[bytes] = []
        self._held = 0  # bytes of `_chunks` and of what was made of them
        self._timer: asyncio.TimerHandle | None = None
        self._answered = True  # nothing has been asked yet

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Find who answers; a request that nobody can answer is read to its end first."""
        assert isinstance(start_line, RequestStartLine)
        self._answered = False
        self._service.connections.begins(self._connection)
        self._service.in_flight += 1
        self._timer = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._too_slow)
        path = start_line.path.partition("?")[0]
        route = self._service.routes.get(path)
        if route is None:
            self._problem = plain(404, "there is nothing at this path")
        elif start_line.method != route.method:
            self._problem = plain(405, f"only {route.method} is answered here")
        elif route.content_type and _media_type(headers) != route.content_type:
            self._problem = plain(415, f"the content type must be {route.content_type}")
        else:
            self._handler = route.handler
        length = headers.get("Content-Length", "")
        if length.isascii() and length.isdigit() and int(length[:18]) > LARGEST_BODY:
            self._problem = TOO_LARGE
            if int(length[:18]) > LARGEST_DISCARDED:
                self._answer(TOO_LARGE)
        return None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Collect the body, unless it cannot be answered anyway."""
        if self._problem is not None:
            return None
        if self._held + len(chunk) > LARGEST_BODY:
            self._problem = TOO_LARGE
        elif self._service.held + len(chunk) > LARGEST_IN_FLIGHT:
            self._problem = TOO_MUCH
        else:
            self._chunks.append(chunk)
            self._hold(self._held + len(chunk))
            return None
        self._chunks = []
        self._hold(0)
        return None

    def finish(self) -> None:
        """The request is complete: answer it, at once or in a task of its own."""
        self._service.connections.served(self._connection)
        if self._problem is not None or self._handler is None:
            self._answer(self._problem or plain(500, "nobody answers"))
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        try:
            answer = self._handler(body)
        except Exception:
            self._answer(_broken())
            return
        if isinstance(answer, Response):
            self._answer(answer)
        else:
            self._service.start_task(self._answer_later(answer))

    def on_connection_close(self) -> None:
        """The client has gone before it had its answer."""
        self._done()

    async def _answer_later(self, answer: Awaitable[Response]) -> None:
        try:
            response = await answer
        except Exception:
            response = _broken()
        self._answer(response)

    def _too_slow(self) -> None:
        self._answer(plain(408, f"the request took longer than {REQUEST_SECONDS:g} s"))

    def _answer(self, response: Response) -> None:
        if self._answered:
            return
        if response is self._problem or response.code in (408, 500):
            self._service.on_problem(response.code)
        headers = HTTPHeaders(
            {"Content-Type": response.content_type, "Content-Length": str(len(response.body))}
        )
        if self._service.draining or self._service.connections.should_end(self._connection):
            headers["Connection"] = "close"
        start_line = ResponseStartLine("HTTP/1.1", response.code, responses[response.code])
        try:
            self._request.write_headers(start_line, headers, response.body)
            self._request.finish()
        except (StreamClosedError, HTTPOutputError):
            pass  # gone meanwhile
        self._done()

    def _done(self) -> None:
        if not self._answered:
            self._answered = True
            self._service.connections.kept(self._connection)
            self._service.in_flight -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._chunks = []
        self._hold(0)

    def _hold(self, size: int) -> None:
        self._service.held += size - self._held
        self._held = size


TOO_MUCH = plain(
    429, f"the requests in flight have more than {LARGEST_IN_FLIGHT // MIB} MiB; try again later"
)
TOO_LARGE = plain(413, f"the body is larger than {LARGEST_BODY // MIB} MiB")


def _broken() -> Response:
    log.exception("request not answered")
    return plain(500, "the server failed; its log says why")


def _media_type(headers: HTTPHeaders) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()
