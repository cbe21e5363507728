"""Many clients at once: all are served, in the order they came; many leases outlive the service."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Look
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient

BOTH = GpuRequest(2)


@pytest.fixture
def unlimited(base: Path) -> Iterator[RunningService]:
    running = RunningService(base, "--waiting-per-user", "0")
    yield running.start()
    running.end()


@pytest.fixture
def clients(unlimited: RunningService) -> Iterator[list[SocketClient]]:
    found = [unlimited.client() for _ in range(200)]
    yield found
    for client in found:
        client.close()


def test_two_hundred_are_served_strictly_in_order_and_none_is_lost(
    unlimited: RunningService, clients: list[SocketClient]
) -> None:
    first, *others = clients
    granted = first.acquire(BOTH)
    for client in others:
        client.wait(BOTH)
    numbers = [granted.entry.number]
    first.close()
    for number, client in enumerate(others):
        granted = client.expect(Granted)
        numbers.append(granted.entry.number)
        if number % 2:
            client.close()  # as one that is killed
            continue
        client.release(granted)
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(clients)
    unlimited.until_entries(0)


def test_twenty_leases_outlive_a_service_that_is_killed_twice(
    unlimited: RunningService, clients: list[SocketClient]
) -> None:
    share = GpuRequest(1, 0.1)
    leases = [client.acquire(share).entry.entry_id for client in clients[:20]]
    for _ in range(2):
        unlimited.end(signal.SIGKILL)
        unlimited.start()
        with unlimited.client() as looker:
            snapshot = looker.ask(Look(), PoolSnapshot)
            assert [entry.entry_id for entry in snapshot.entries] == leases
            # what is held is not handed out again
            refused = looker.ask(Acquire(BOTH, wait=False), Refused)
            assert refused.code == refusal_codes.NOT_ENOUGH_FREE
    for client in clients[:10]:
        client.close()
    assert {entry.entry_id for entry in unlimited.until_entries(10)} == set(leases[10:])
