"""``/healthz``, ``/readyz`` and ``/metrics`` over plain HTTP, in the loop that serves the kubelet.

The other processes have tornado for their reviews and serve these with it, too; here it would be a tenth of
the memory, for a request in fifteen seconds. One request a connection, each with a time limit as a whole, so
that clients which say nothing, or little by little, keep nobody else from an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from bitfusion_device_plugin.plugin.metric_text import CONTENT_TYPE

REQUEST_S = 5.0  # for all of a request to arrive, and for its answer to be taken
LARGEST_REQUEST = 16 << 10
MOST_CONNECTIONS = 64  # others are closed at once: a crowd takes no memory
PLAIN = "text/plain; charset=utf-8"


class Monitoring:
    """The listener; made, started and stopped by the process."""

    def __init__(self, not_ready: Callable[[], str], metrics: Callable[[], bytes]) -> None:
        """`not_ready`: what is missing, empty when nothing is. `metrics`: the body of ``/metrics``."""
        self._not_ready = not_ready
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, address: str, port: int) -> int:
        """Listen; the port. Raises OSError."""
        host = None if address == "::" else address  # None: all addresses of IPv6 and IPv4
        self._server = await asyncio.start_server(self._serve, host, port, limit=LARGEST_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Close the listener; answers under way end with the loop."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        # Whatever is waited for below ends when the connection does.
        limit = asyncio.get_running_loop().call_later(REQUEST_S, writer.transport.abort)
        try:
            if self._open <= MOST_CONNECTIONS:
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no request, too long a one, or gone: nobody to tell
        finally:
            limit.cancel()
            self._open -= 1
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        status, kind, body = HTTPStatus.OK, PLAIN, b"ok"
        if method not in ("GET", "HEAD"):
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n"
        elif path == "/metrics":
            kind, body = CONTENT_TYPE, self._metrics()
        elif path == "/readyz":
            missing = self._not_ready()
            if missing:
                status, body = HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {missing}".encode()
        elif path != "/healthz":
            status, body = HTTPStatus.NOT_FOUND, b"there are /healthz, /readyz and /metrics\n"
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)
