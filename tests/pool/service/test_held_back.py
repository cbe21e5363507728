"""What a client may say while its request is held back for a reading of the devices."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.messages.from_client import Acquire, Cancel, Hello, Look
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Refused,
    Released,
    Welcome,
    parse_from_service,
)
from bitfusion_pool.messages.message import PROTOCOL, Message
from bitfusion_pool.service.connections.admission import LocalAdmission
from bitfusion_pool.service.connections.client_connection import ClientConnection
from bitfusion_pool.service.connections.connection_counts import ConnectionCounts
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.leases.lease_secrets import LeaseSecrets
from bitfusion_pool.service.leases.lease_watch import LeaseWatch
from bitfusion_pool.service.leases.limits import UserLimits
from bitfusion_pool.service.leases.operations import LeaseTimes, PoolOperations
from bitfusion_pool.service.leases.remote_leases import RemoteLeases
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import RefusalLog
from bitfusion_pool.service.sessions.entry_watch import EntryWatch
from bitfusion_pool.service.sessions.kept_requests import KeptRequests
from bitfusion_pool.service.sessions.lease_life import LifeByLock
from bitfusion_pool.service.sessions.session import Session


class Client:
    """A session that was greeted, and what it was answered. `held` are its steps that are held back."""

    def __init__(self, ledger: Ledger, loop: asyncio.AbstractEventLoop) -> None:
        self.answers: list[Message | None] = []
        self.held: list[Callable[[], None]] = []
        self.is_behind = False
        times = LeaseTimes(15.0, 120.0, 5.0)
        operations = PoolOperations(ledger, LeaseSecrets(b"key"), UserLimits(), "test", times, lambda: None)
        operations.once_known = self.held.append
        entry_watch = EntryWatch(ledger.states, loop)
        lease_watch = LeaseWatch(operations)
        kept_requests = KeptRequests(operations, entry_watch, loop, 1.0)
        self.session = Session(
            cast(ClientConnection, self),
            LocalAdmission(Peer(os.getuid(), "ada", os.getpid()), ConnectionCounts(9, 9)),
            LifeByLock(operations, lease_watch, kept_requests),
            operations,
            entry_watch,
            lease_watch,
            kept_requests,
            RemoteLeases(operations, times.closed_s, times.silent_s, Metrics()),
            None,
            Metrics(),
            RefusalLog(Metrics()),
            loop,
            lambda session: None,
        )
        self.say(Hello(PROTOCOL, "test"))
        assert self.last(Welcome)

    def send(self, data: bytes, fd: int = -1) -> None:
        self.answers.append(parse_from_service(data))
        if fd >= 0:
            os.close(fd)

    def end(self) -> None:
        self.answers.append(None)

    def say(self, message: Message) -> None:
        self.session.line(message.format())

    def go_on(self) -> None:
        """The devices have been read."""
        held, self.held[:] = list(self.held), []
        for step in held:
            step()

    def last(self, kind: type[Message]) -> bool:
        return bool(self.answers) and isinstance(self.answers[-1], kind)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    loop = asyncio.new_event_loop()
    with Ledger({**os.environ, "BITFUSION_POOL_DIR": str(tmp_path / "pool")}) as ledger:
        client = Client(ledger, loop)
        client.answers.clear()
        yield client
        client.session.closed(by_client=True)
    loop.close()


def test_a_request_is_in_the_ledger_once_the_devices_are_known(client: Client) -> None:
    client.say(Acquire(GpuRequest(1)))
    assert client.answers == []
    client.go_on()
    assert client.last(Granted)


def test_a_request_that_is_cancelled_meanwhile_never_was(client: Client) -> None:
    client.say(Acquire(GpuRequest(1)))
    client.say(Cancel())
    assert client.answers == [Released("")]
    client.go_on()
    assert client.answers == [Released("")]


def test_a_client_that_leaves_meanwhile_takes_nothing(client: Client) -> None:
    client.say(Acquire(GpuRequest(1)))
    client.session.closed(by_client=True)
    client.go_on()
    assert client.answers == []


def test_a_second_request_meanwhile_is_refused(client: Client) -> None:
    client.say(Acquire(GpuRequest(1)))
    client.say(Acquire(GpuRequest(1)))
    refused, end = client.answers
    assert isinstance(refused, Refused)
    assert refused.message == "this connection waits for GPUs already"
    assert end is None
    client.go_on()
    assert len(client.answers) == 2


def test_a_request_that_is_refused_then_is_told(client: Client) -> None:
    client.say(Acquire(GpuRequest(9)))
    client.go_on()
    assert client.last(Refused)


def test_looks_do_not_pile_up(client: Client) -> None:
    for _ in range(5):
        client.say(Look())
    assert len(client.held) == 1
    assert [type(answer) for answer in client.answers] == [PoolSnapshot] * 4
    client.go_on()
    assert [type(answer) for answer in client.answers] == [PoolSnapshot] * 5
