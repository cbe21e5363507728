"""Certificate files are exchanged while thousands of requests run: not one may fail.

Kept connections go on with the certificate they began with; new ones, with and without a server name, get
the newest. The server is tornado's, as the admission server is.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.netutil import bind_sockets

from bitfusion_cluster.certificates.serving import CertificateFolder, ServingCertificate
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair, serial, trusted
from tests.support.machine import scaled
from tests.support.waiting import wait_until

KINDS = ("ECDSA", "RSA", "RSA", "ECDSA", "ECDSA", "RSA", "ECDSA", "ECDSA")
REQUESTS = 4000
POLL_S = 0.02


class LoadedServer:
    """A tornado server in a thread, whose certificate folder is looked at every `POLL_S`."""

    def __init__(self, mount: MountedSecret) -> None:
        self.serving = ServingCertificate()
        self.folder = CertificateFolder(mount.folder, self.serving)
        self.folder.load()
        self.port = 0
        self.ready = threading.Event()
        self.ending = asyncio.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._serve()))
        self.thread.start()
        assert self.ready.wait(scaled(5))

    async def _serve(self) -> None:
        def answer(request: HTTPServerRequest) -> None:
            assert request.connection is not None
            headers = HTTPHeaders({"Content-Length": "2"})
            request.connection.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), headers)
            request.connection.write(b"ok")
            request.connection.finish()

        server = HTTPServer(answer, ssl_options=self.serving.context)
        sockets = bind_sockets(0, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        server.add_sockets(sockets)
        self.ready.set()
        while not self.ending.is_set():
            self.folder.refresh()
            await asyncio.sleep(POLL_S)
        server.stop()
        await server.close_all_connections()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.ending.set)
        self.thread.join()
        self.loop.close()


class Client(threading.Thread):
    """Sends requests until told to stop; keeps its connection for `per_connection` of them."""

    def __init__(self, port: int, per_connection: int, server_name: bool, stop: threading.Event) -> None:
        super().__init__()
        self.port, self.per_connection, self.server_name, self.stop = port, per_connection, server_name, stop
        self.sent = 0
        self.connections: Counter[int] = Counter()  # by the certificate's serial number
        self.failures: list[str] = []

    def run(self) -> None:
        context = ssl.create_default_context(cadata=trusted())
        context.check_hostname = self.server_name
        while not self.stop.is_set():
            host = "localhost" if self.server_name else "127.0.0.1"
            connection = http.client.HTTPSConnection(host, self.port, timeout=scaled(5), context=context)
            try:
                connection.connect()
                certificate = connection.sock.getpeercert(binary_form=True)
                self.connections[serial(certificate or b"")] += 1
                for _ in range(self.per_connection):
                    connection.request("GET", "/")
                    if connection.getresponse().read() != b"ok":
                        self.failures.append("another answer")
                    self.sent += 1
                    if self.stop.is_set():
                        break
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            finally:
                connection.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[LoadedServer, MountedSecret]]:
    mount = MountedSecret(tmp_path / "tls", pair("ECDSA"))
    running = LoadedServer(mount)
    yield running, mount
    running.end()


@pytest.mark.long
def test_no_request_fails_while_certificates_are_exchanged(
    server: tuple[LoadedServer, MountedSecret], capsys: pytest.CaptureFixture[str]
) -> None:
    running, mount = server
    stop = threading.Event()
    clients = [
        Client(running.port, per_connection, server_name, stop)
        for per_connection, server_name in ((1, True), (1, False), (20, True), (10**9, True))
    ]
    for client in clients:
        client.start()
    try:
        used = []
        for number, kind in enumerate(KINDS, 1):
            fresh = pair(kind)
            used.append(serial(fresh.certificate))
            mount.exchange(fresh)
            wait_until(partial(_connected, clients[:2], used[-1]), "new connections", 40)
            wait_until(partial(_sent_so_many, clients, REQUESTS * number / len(KINDS)), "more requests", 40)
    finally:
        stop.set()
        for client in clients:
            client.join()
    failures = [failure for client in clients for failure in client.failures]
    connections = sum(sum(client.connections.values()) for client in clients)
    with capsys.disabled():
        print(
            f"\ncertificates exchanged {len(KINDS)} times ({', '.join(KINDS)}) under {_sent(clients)} "
            f"requests over {connections} connections: {len(failures)} failed"
        )
    assert failures == []
    assert _sent(clients) >= REQUESTS
    # the one that kept its connection all the time
    assert sum(clients[3].connections.values()) == 1
    for client in clients[:2]:
        assert set(used) <= set(client.connections)


def _connected(clients: list[Client], certificate: int) -> bool:
    return all(client.connections[certificate] >= 5 for client in clients)


def _sent(clients: list[Client]) -> int:
    return sum(client.sent for client in clients)


def _sent_so_many(clients: list[Client], requests: float) -> bool:
    return _sent(clients) >= requests
