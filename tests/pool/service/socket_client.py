"""A client of a service's unix socket, as bare as the messages are."""

from __future__ import annotations

import os
import socket
import time
from typing import TypeVar

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.messages.from_client import Acquire, Hello, Release
from bitfusion_pool.messages.from_service import (
    Granted,
    Refused,
    Released,
    Waiting,
    Welcome,
    parse_from_service,
)
from bitfusion_pool.messages.lines import LineBuffer
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, PROTOCOL, Message
from bitfusion_pool.messages.refusal_codes import ENDED, LEASE_OVER
from tests.support.machine import scaled

M = TypeVar("M", bound=Message)
LIMIT_S = 10.0  # for an answer, on a calm machine


class SocketClient:
    """One connection. `fds` are the descriptors that came with messages, for the client to close."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(scaled(LIMIT_S))
        self.socket.connect(path)
        self._begin()

    def _begin(self) -> None:
        self.fds: list[int] = []
        self._lines = LineBuffer(LONGEST_FROM_SERVICE)
        self._received: list[bytes] = []

    @classmethod
    def of_user(cls, path: str, uid: int) -> SocketClient:
        """The connection of another user, for this process of root to use; it has been welcomed."""
        os.seteuid(uid)  # the kernel notes the effective uid that connects
        try:
            client = cls(path)
        finally:
            os.seteuid(0)
        client.hello()
        return client

    def __enter__(self) -> SocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and whatever it holds."""
        self.socket.close()
        self.drop_locks()

    def drop_locks(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    def send(self, message: Message) -> None:
        self.socket.sendall(message.format())

    def receive(self) -> Message | None:
        """The next message; None at the end of the connection."""
        while not self._received:
            try:
                data = self._read()
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._received += self._lines.feed(data)
        return parse_from_service(self._received.pop(0))

    def _read(self) -> bytes:
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 4)
        self.fds += fds
        return data

    def expect(self, kind: type[M]) -> M:
        """The next message but `Waiting`, which is of this kind."""
        while True:
            message = self.receive()
            if isinstance(message, kind):
                return message
            assert isinstance(message, Waiting), message

    def expect_position(self, position: int) -> Waiting:
        """The next word that it waits at this position."""
        while True:
            message = self.receive()
            assert isinstance(message, Waiting), message
            if message.position == position:
                return message

    def ask(self, message: Message, kind: type[M]) -> M:
        self.send(message)
        return self.expect(kind)

    def hello(self) -> Welcome:
        return self.ask(Hello(PROTOCOL, "test"), Welcome)

    def acquire(self, request: GpuRequest | None = None, label: str = "test.ipynb") -> Granted:
        return self.ask(Acquire(request or GpuRequest(), label=label), Granted)

    def release(self, granted: Granted) -> None:
        """Give GPUs back as the command does, the lock first: the service may notice that before it reads."""
        lease = granted.entry.entry_id
        self.drop_locks()
        self.send(Release(lease, granted.secret))
        answer = self.receive()
        if isinstance(answer, Refused):
            assert answer.code == ENDED, answer
            answer = self.receive()
            assert isinstance(answer, Refused), answer
            assert answer.code == LEASE_OVER, answer
        else:
            assert answer == Released(lease)

    def wait(self, request: GpuRequest | None = None, label: str = "test.ipynb") -> Waiting:
        """Ask for what is not free."""
        return self.ask(Acquire(request or GpuRequest(), label=label), Waiting)


def connected(path: str) -> SocketClient:
    """A client that has been welcomed."""
    client = SocketClient(path)
    try:
        client.hello()
    except BaseException:
        client.close()
        raise
    return client


def milliseconds(begin: float) -> float:
    """Since `time.monotonic` was `begin`."""
    return (time.monotonic() - begin) * 1000
