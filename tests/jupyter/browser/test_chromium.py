"""The browser of the tests beside tests whose nodes come and go."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

from tests.cluster.node import why_no_node

FILES = 12
"""More than Chromium asks one server for at once."""


class SlowFiles(ThreadingHTTPServer):
    """Serves a page with many style sheets, which come when `flow` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked, self.flow = threading.Semaphore(0), threading.Event()
        super().__init__(("127.0.0.1", 0), SlowFile)


class SlowFile(BaseHTTPRequestHandler):
    server: SlowFiles

    def do_GET(self) -> None:
        body, kind = "".join(f"<link rel=stylesheet href=/{n}.css>" for n in range(FILES)), "text/html"
        if self.path.endswith(".css"):
            self.server.asked.release()
            self.server.flow.wait(60)
            body, kind = "p { color: black }", "text/css"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[SlowFiles]:
    with SlowFiles() as made:
        threading.Thread(target=made.serve_forever).start()
        yield made
        made.flow.set()
        made.shutdown()


@pytest.mark.skipif(why_no_node() is not None, reason="adds an interface to this machine, for a moment")
def test_an_interface_that_comes_and_goes_ends_no_request(browser: Browser, server: SlowFiles) -> None:
    page = browser.new_page()
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(f"{request.url}: {request.failure}"))
    try:
        page.goto(f"http://127.0.0.1:{server.server_port}/", wait_until="commit")
        for _ in range(6):
            assert server.asked.acquire(timeout=30)
        name = f"bft{os.getpid()}"
        for command in (
            f"link add {name} type veth peer name {name}-peer",
            f"addr add 192.0.2.1/32 dev {name}",
            f"link set {name} up",
            f"link set {name}-peer up",
            f"link del {name}",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        page.wait_for_timeout(2000)  # Chromium waits for further changes, up to a second
        server.flow.set()
        page.wait_for_load_state()
        assert failed == []
        assert page.evaluate("navigator.onLine")
    finally:
        page.close()
