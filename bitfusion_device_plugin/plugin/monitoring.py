"""``/healthz``, ``/readyz`` and ``/metrics`` in a thread, by the standard library's server.

The other processes have tornado for their reviews and serve these with it, too; here it would be a tenth of
the memory, for a request in fifteen seconds.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

ANSWER_S = 5.0  # a client that sends or reads nothing for so long is cut off
PLAIN = [("Content-Type", "text/plain; charset=utf-8")]
Start = Callable[[str, list[tuple[str, str]]], object]


class _Handler(WSGIRequestHandler):
    timeout = ANSWER_S

    def log_message(self, format: str, *args: object) -> None:
        """Probes are no news."""


class _Server(WSGIServer):
    """One request at a time: no crowd of clients takes more than one thread."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of ours."""


class _DualStackServer(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class Monitoring:
    """The listener; made, started and stopped by the process."""

    def __init__(self, not_ready: Callable[[], str], registry: CollectorRegistry) -> None:
        """`not_ready`: what is missing, empty when nothing is; called in the thread."""
        self._not_ready = not_ready
        self._metrics = make_wsgi_app(registry)
        self._server: WSGIServer | None = None

    def start(self, address: str, port: int) -> int:
        """Listen; the port. Raises OSError."""
        kind = _DualStackServer if ":" in address and socket.has_ipv6 else _Server
        server = kind((address, port), _Handler)
        server.set_app(self._answer)
        self._server = server
        # 2 s: it wakes so often to look whether it shall end, by default four times as often
        threading.Thread(target=server.serve_forever, args=(2.0,), name="monitoring", daemon=True).start()
        return int(server.server_address[1])

    def stop(self) -> None:
        """Close the listener; the thread ends with the process."""
        if self._server is not None:
            self._server.socket.close()

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            return self._metrics(environ, start)  # type: ignore[no-any-return]  # not annotated there
        if path not in ("/healthz", "/readyz"):
            start("404 Not Found", PLAIN)
            return [b"there are /healthz, /readyz and /metrics\n"]
        missing = self._not_ready() if path == "/readyz" else ""
        start("503 Service Unavailable" if missing else "200 OK", PLAIN)
        return [(f"not ready: {missing}" if missing else "ok").encode()]
