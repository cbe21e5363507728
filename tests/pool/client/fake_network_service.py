"""A service on the network that does what a test says: TLS, a token, and one lease after another."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from bitfusion_client.version import VERSION
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import client_text, servers_text
from bitfusion_pool.access.token_text import new_token
from bitfusion_pool.ledger.entries import REMOTE
from bitfusion_pool.messages.from_client import (
    Acquire,
    Alive,
    Cancel,
    Hello,
    Release,
    Renew,
    Resume,
    parse_from_client,
)
from bitfusion_pool.messages.from_service import DIRECT, Granted, Refused, Released, Renewed, Welcome
from bitfusion_pool.messages.message import Message
from bitfusion_pool.messages.refusal_codes import WRONG_TOKEN
from tests.pool.client.fake_service import SERVER, WELCOME, lease
from tests.support.certificates import Certified, certified
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
ENTRY, SECRET = lease().entry_id, "secret"
"""Of the lease that is granted."""
LIMIT_S = 20.0


def welcome(
    closed_s: float,
    silent_s: float,
    heartbeat_s: float,
    token_expires_at: float = 0.0,
    software: str = VERSION,
    token_created_at: float = 0.0,
    route: str = DIRECT,
) -> Welcome:
    """The welcome of a service with these times."""
    shown = WELCOME
    return Welcome(
        shown.protocol,
        shown.pool,
        shown.client_id,
        shown.simulated,
        shown.servers,
        shown.emulation,
        closed_s,
        silent_s,
        heartbeat_s,
        token_expires_at,
        software,
        token_created_at,
        route,
    )


class FakeNetworkService:
    """Listens at a port of this machine from `start` to `stop`, which may follow one another more than once.

    Attributes:
        answer: What is said to a client's message after its hello; it may return nothing.
        heard: All messages but `Alive`, in their order.
        words: How many `Alive` were heard.
        refusal: What every hello is answered with.
        silent: Whether no hello is answered.
        ends: How clients have ended their connections: ``in order`` or ``reset``.
    """

    def __init__(self, folder: Path, welcome: Welcome = WELCOME) -> None:
        self.folder = folder
        self.welcome = welcome
        self.token = new_token()
        self.answer: Callable[[Message], Message | None] = self.grant
        self.heard: list[Message] = []
        self.words = 0
        self.refusal: Refused | None = None
        self.silent = False
        self.ends: list[str] = []
        self.connections: list[ssl.SSLSocket] = []
        self.authority = certified("the pool's authority", authority=True)
        self.certificate = certified("service", [HOST], signed_by=self.authority)
        self.port = free_port()
        self._sending = threading.Lock()  # one answers while a test says something
        self._listening: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def requests(self) -> list[Message]:
        """What was heard but hellos: a client whose answer is late dials anew, and may get it then."""
        return [message for message in self.heard if not isinstance(message, Hello)]

    def write_files(self, home: Path, *servers: Address, token: str = "", timeout: str = "") -> None:
        """The three files of a client, with the default's timeout as it is on this machine."""
        folder = home / ".bitfusion"
        folder.mkdir(exist_ok=True)
        (folder / "servers.conf").write_text(servers_text(servers or [Address(HOST, self.port)]))
        timeout = timeout or f"{scaled(3000):.0f}ms"
        text = client_text(token or self.token).replace("timeout: 3s", f"timeout: {timeout}")
        (folder / "client.yaml").write_text(text)
        (folder / "ca.crt").write_bytes(self.authority.certificate)

    def start(self, certificate: Certified | None = None) -> FakeNetworkService:
        shown = certificate or self.certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.folder.mkdir(exist_ok=True)
        context.load_cert_chain(*shown.write(self.folder))
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, self.port))
        listening.listen()
        self._listening = listening
        self._run(self._accept, listening, context)
        return self

    def stop(self) -> None:
        """As one that is killed: nobody listens, and all connections end without a word."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(scaled(LIMIT_S))
        self._threads.clear()

    def hang_up(self) -> None:
        """End all connections."""
        while self.connections:
            connection = self.connections.pop()
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def say(self, message: Message) -> None:
        """To everybody who is connected, unasked."""
        for connection in list(self.connections):
            try:
                self._send(connection, message)
            except OSError:
                pass  # the client has replaced it

    def grant(self, message: Message) -> Message | None:
        """The answers of a service that has a GPU for everybody."""
        if isinstance(message, (Acquire, Resume)):
            return Granted(lease(kind=REMOTE), SERVER, SECRET)
        if isinstance(message, Release):
            return Released(message.lease)
        if isinstance(message, Renew):
            return Renewed(message.lease)
        if isinstance(message, Cancel):
            return Released("")
        return message if isinstance(message, Alive) else None

    def until_heard(self, kind: type[Message], count: int = 1) -> None:
        wait_until(
            lambda: sum(isinstance(message, kind) for message in self.heard) >= count,
            lambda: self.heard,
            LIMIT_S,
        )

    def until_words(self, more: int = 2) -> None:
        """Until so many more `Alive` have come: the keeper is there."""
        before = self.words
        wait_until(lambda: self.words >= before + more, "words of the client", LIMIT_S)

    # --- inside ----------------------------------------------------------------------------------------

    def _send(self, connection: ssl.SSLSocket, message: Message) -> None:
        with self._sending:
            connection.sendall(message.format())

    def _run(self, function: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=function, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            self._run(self._serve, listening, connected, context)

    def _serve(self, listening: socket.socket, connected: socket.socket, context: ssl.SSLContext) -> None:
        connected.settimeout(scaled(LIMIT_S))
        try:
            with connected, context.wrap_socket(connected, server_side=True) as tls:
                self.connections.append(tls)
                if self._listening is not listening:
                    return  # stopped while it was made
                for line in self._lines(tls):
                    message = parse_from_client(line)
                    assert message is not None
                    if isinstance(message, Alive):
                        self.words += 1
                    else:
                        self.heard.append(message)
                    answer = self._hello(message) if isinstance(message, Hello) else self.answer(message)
                    if answer is not None:
                        self._send(tls, answer)
        except OSError:
            pass  # the client hung up, or the test did

    def _lines(self, tls: ssl.SSLSocket) -> Iterator[bytes]:
        rest = b""
        while True:
            if not tls.pending():
                try:
                    # past OpenSSL, which takes a reset for an end
                    more = socket.socket.recv(tls, 1, socket.MSG_PEEK)
                except ConnectionResetError:
                    self.ends.append("reset")
                    return
                if not more:
                    self.ends.append("in order")
                    return
            *lines, rest = (rest + tls.recv(1 << 16)).split(b"\n")
            yield from lines

    def _hello(self, message: Hello) -> Message | None:
        if self.silent or self.refusal is not None:
            return self.refusal
        if message.token != self.token:
            return Refused(WRONG_TOKEN, "this pool does not know the token", "ask for a new token")
        return self.welcome
