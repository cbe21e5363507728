"""A service that says what a test tells it to say, right or wrong."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import HELD, PROCESS, Entry, Holder
from bitfusion_pool.messages.from_client import Acquire, parse_from_client
from bitfusion_pool.messages.from_service import Granted, Welcome
from bitfusion_pool.messages.message import PROTOCOL, Message
from tests.support.machine import scaled

SERVER = Server("local", "127.0.0.1", 56001, (Device(0, "Simulated T4", 16000),), uuid="server")
WELCOME = Welcome(PROTOCOL, "the pool of this test", "00000000-0000-4000-a000-000000000000", True, (SERVER,))
LIMIT_S = 20.0


def lease(entry_id: str = "0123456789abcdef", kind: str = PROCESS, label: str = "x") -> Entry:
    """A lease of the whole GPU."""
    holder = Holder(label, "ada", 7, "host", 1000)
    shares = (Share(SERVER.key, 0, 16000),)
    return Entry(1, entry_id, HELD, kind, GpuRequest(1), holder, (SERVER.key,), 1.0, 2.0, None, shares)


class Conversation:
    """One connection, as the service sees it."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(scaled(LIMIT_S))
        self._socket = connected
        self._lines = connected.makefile("rb")

    def hear(self) -> Message | None:
        """What the client says next; None once it has hung up, or says what a service does not know."""
        line = self._lines.readline()
        return parse_from_client(line) if line else None

    def has_hung_up(self) -> bool:
        return not self._lines.readline()

    def say(self, message: Message, fd: int = -1) -> None:
        """With `fd`, the descriptor goes with it, and is closed here."""
        socket.send_fds(self._socket, [message.format()], [fd] if fd >= 0 else [])
        if fd >= 0:
            os.close(fd)

    def say_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def welcome(self) -> Message | None:
        """Take the client; what it says then."""
        self.hear()
        self.say(WELCOME)
        return self.hear()

    def grant(self, fd: int = -1, entry: Entry | None = None) -> None:
        self.say(Granted(entry or lease(), SERVER, "secret"), fd)

    def end(self) -> None:
        self._lines.close()
        self._socket.close()


class FakeService:
    """Listens at `path`, and holds each of the conversations once, in this order."""

    def __init__(self, path: Path, *conversations: Callable[[Conversation], None]) -> None:
        self.path = path
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.settimeout(scaled(LIMIT_S))
        self._conversations = conversations
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> FakeService:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.join()
        self._listening.close()
        if self._problem is not None and kind is None:
            raise self._problem

    def _serve(self) -> None:
        try:
            for hold in self._conversations:
                conversation = Conversation(self._listening.accept()[0])
                try:
                    hold(conversation)
                finally:
                    conversation.end()
        except BaseException as error:
            self._problem = error


def asks(message: Message | None) -> Acquire:
    assert isinstance(message, Acquire)
    return message
