"""A server under test in this process, and a client that speaks HTTP/1.1 over TLS by hand."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, ImageRule
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.webhooks.review_server import ReviewServer
from notebook_controller_patch.admission.webhooks import notebook_webhooks
from tests.notebook_controller_patch.admission.reviews import OURS, body
from tests.support.certificates import certified

HOST = "127.0.0.1"


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate (ECDSA P-256) for localhost and its key, as files."""
    return certified("localhost", ["localhost"]).write(folder)


def server_context(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    """A TLS context that shows the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    return context


@dataclass
class Answer:
    """What came back for one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def response(self) -> dict[str, Any]:
        """The AdmissionReview's response."""
        response: dict[str, Any] = json.loads(self.body)["response"]
        return response


@dataclass
class Client:
    """One connection, kept."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request with its length and read the answer."""
        given = {"Host": "localhost", "Content-Length": str(len(content)), **(headers or {})}
        await self.write(head(method, path, given) + content)
        return await self.read()

    async def post(self, path: str, content: bytes | Mapping[str, Any]) -> Answer:
        """Post JSON as the apiserver does."""
        posted = content if isinstance(content, bytes) else body(content)
        return await self.send("POST", path, posted, {"Content-Type": "application/json"})

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> Answer:
        """Read one answer; EOFError when the server has closed the connection instead."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        content = await self.reader.readexactly(int(headers.get("Content-Length", "0")))
        return Answer(int(lines[0].split()[1]), headers, content)

    async def ended(self) -> bool:
        """Whether the server has closed the connection (waits for it)."""
        try:
            return await self.reader.read() == b""
        except (ConnectionError, ssl.SSLError):
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            pass  # the server was faster


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The start of a request, up to its body."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass
class Record:
    """What the watch cache knows of a Notebook."""

    uid: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)


class Cache(dict[tuple[str, str], Record]):
    """The watch cache; ``get(namespace, name)``."""

    def get(self, namespace: str, name: str) -> Record | None:  # type: ignore[override]  # a cache, no dict
        return super().get((namespace, name))


@dataclass
class Live:
    """A ReviewServer on a free port of this machine."""

    context: ssl.SSLContext
    cache: Cache = field(default_factory=Cache)
    notebooks: dict[tuple[str, str], Any] = field(default_factory=dict)
    rules: Sequence[ImageRule] = DEFAULT_RULES
    ready: dict[str, bool] = field(default_factory=dict)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    server: ReviewServer = field(init=False)
    port: int = 0
    unsure: list[str] = field(default_factory=list)

    def fetch(self, namespace: str, name: str) -> Mapping[str, Any]:
        """The apiserver, as Owners asks it; replaced by tests."""
        notebook: Mapping[str, Any] = self.notebooks[namespace, name]
        return notebook

    def record(self, namespace: str, name: str, within: float) -> NotebookRecord | None:
        """What Owners gets of it."""
        return notebook_record(self.fetch(namespace, name))

    async def client(self) -> Client:
        """A new connection."""
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        return Client(*await asyncio.open_connection(HOST, self.port, ssl=trusting))

    def value(self, name: str, **labels: str) -> float:
        """A metric's value, 0 if it was never counted."""
        return self.registry.get_sample_value(name, labels) or 0


@asynccontextmanager
async def serving(live: Live) -> AsyncIterator[Live]:
    """The server started, and stopped at the end."""
    metrics = AdmissionMetrics(live.registry)
    owners = Owners(live.cache, live.record, metrics, lambda namespace, name: live.unsure.append(name))
    ready = {name: partial(live.ready.__getitem__, name) for name in live.ready}
    webhooks = notebook_webhooks(lambda: live.rules, owners, OURS)
    live.server = ReviewServer(webhooks, metrics, ready, live.context)
    live.port = await live.server.start(HOST, 0)
    try:
        yield live
    finally:
        await live.server.stop(0)
        owners.close()
