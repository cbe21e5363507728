"""A client of a service over TLS, as bare as the messages are, and what it needs to be let in."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.certificate_files import create_certificates
from bitfusion_pool.access.client_files import certificate_for_clients
from bitfusion_pool.access.tls import client_context
from bitfusion_pool.access.token_file import change_tokens, read_tokens
from bitfusion_pool.access.token_rules import IssuerBounds, TokenLimits
from bitfusion_pool.access.tokens import Tokens
from bitfusion_pool.messages.from_client import SEGMENTS, Acquire, Hello, Release, Resume
from bitfusion_pool.messages.from_service import Granted, Refused, Released, Waiting, Welcome
from bitfusion_pool.messages.message import PROTOCOL, Message
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import LIMIT_S, M, SocketClient
from tests.support.machine import scaled
from tests.support.ports import free_port

HOST = "127.0.0.1"


def connected(port: int, segment: int, timeout_s: float, source: str = HOST) -> socket.socket:
    """A connection to this port, for which this maximum segment size is announced."""
    plain = socket.socket()
    try:
        plain.bind((source, 0))
        plain.settimeout(timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
        plain.connect((HOST, port))
    except BaseException:
        plain.close()
        raise
    return plain


class TlsClient(SocketClient):
    """One connection over TLS. `segment` is what it tells in its hello, and announces."""

    def __init__(self, port: int, authority: str, source: str = HOST) -> None:
        self.segment = SEGMENTS[0]
        plain = connected(port, self.segment, scaled(LIMIT_S), source)
        # as the real one: else the first message waits for 40 ms, until the handshake is acknowledged
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket = client_context(Path(authority).read_text()).wrap_socket(plain, server_hostname=HOST)
        except BaseException:
            plain.close()
            raise
        self._begin()

    def __enter__(self) -> TlsClient:
        return self

    def _read(self) -> bytes:
        return self.socket.recv(1 << 16)

    def say_hello(self, token: str, kind: type[M]) -> M:
        return self.ask(Hello(PROTOCOL, "test", token, self.segment), kind)

    def release(self, granted: Granted) -> None:
        released = self.ask(Release(granted.entry.entry_id, granted.secret), Released)
        assert released == Released(granted.entry.entry_id)

    def come_back(self, to: Granted | Waiting, kind: type[M]) -> M:
        entry_id = to.entry.entry_id if isinstance(to, Granted) else to.entry
        self.send(Resume(entry_id, to.secret))
        found = self.receive()
        assert isinstance(found, kind), found
        return found

    def cut(self) -> None:
        """End without a word, as a process that is killed."""
        self.socket.close()

    def reset(self) -> None:
        """As a network that breaks the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class NetworkService(RunningService):
    """A service that listens at a port of 127.0.0.1, with short times, and issues tokens."""

    def __init__(self, base: Path, *options: str) -> None:
        self.port = free_port()
        # all clients of a test have one address
        unpaced = "--handshakes-per-address", "1000000"
        super().__init__(base, "--listen", f"{HOST}:{self.port}", *unpaced, *options)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        create_certificates(str(self.folder), [HOST], datetime.now(timezone.utc))

    @property
    def authority(self) -> str:
        return certificate_for_clients(str(self.folder))

    def token(
        self,
        name: str,
        limits: TokenLimits | None = None,
        lasts_s: float = 3600,
        may_issue: IssuerBounds | None = None,
    ) -> str:
        """Issue one."""
        text = ""

        def change(tokens: Tokens) -> Tokens:
            nonlocal text
            now = time.time()
            changed, text = tokens.with_new(name, now + lasts_s, limits or TokenLimits(), now, may_issue)
            return changed

        change_tokens(str(self.folder), change)
        return text

    def fails(self) -> tuple[int, str]:
        """Start it where it cannot; returns its exit status and words."""
        done = subprocess.run(self.command(), capture_output=True, text=True, timeout=scaled(LIMIT_S))
        return done.returncode, done.stderr

    def revoke(self, name: str) -> None:
        def change(tokens: Tokens) -> Tokens:
            found = tokens.good(name, time.time())
            assert found is not None
            return tokens.without(found, time.time())

        change_tokens(str(self.folder), change)
        assert read_tokens(str(self.folder)).good(name, time.time()) is None

    def stranger(self, source: str = HOST) -> TlsClient:
        """A connection that has said nothing yet."""
        return TlsClient(self.port, self.authority, source)

    def remote(self, token: str, source: str = HOST) -> TlsClient:
        """A client that has been welcomed."""
        client = self.stranger(source)
        try:
            client.say_hello(token, Welcome)
        except BaseException:
            client.close()
            raise
        return client


def refusal(client: SocketClient, message: Message | None = None) -> Refused:
    """The next answer, which must be one."""
    if message is not None:
        client.send(message)
    return client.expect(Refused)


def half(kind: str = "process") -> Acquire:
    """A request for half a GPU."""
    return Acquire(GpuRequest(1, 0.5), kind=kind, label="far.ipynb", pid=7, host="pod-1")
