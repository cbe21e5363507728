"""A service over TLS that is ended, in order or not, while twenty clients hold leases: none is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.tls import client_context
from tests.pool.network.simulated_client import Book, SimulatedClient, Times, clock
from tests.pool.service.tls_client import NetworkService
from tests.support.machine import scaled

POOL = """
[[servers]]
name = "a"
address = "10.0.0.1"
[[servers.devices]]
count = 10
"""
LEASES = 20
TIMES = Times(closed_s=15.0, silent_s=120.0, heartbeat_s=0.5)


async def until(condition: Callable[[], bool], what: str) -> None:
    """`wait_until` for an event loop."""
    end = time.monotonic() + scaled(20.0)
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_twenty_leases_outlive_the_service(base: Path, number: int) -> None:
    service = NetworkService(base, "--heartbeat-s=0.5")
    service.configure(POOL)
    service.start()
    try:
        asyncio.run(outlive(service, number))
        service.until_entries(0)
    finally:
        service.end()


async def outlive(service: NetworkService, number: int) -> None:
    book = Book({("10.0.0.1:56001", device): 16160 for device in range(10)}, TIMES)
    context, token = client_context(Path(service.authority).read_text()), service.token("pod")
    clients = [
        SimulatedClient(f"c{each}", service.port, context, token, TIMES, book) for each in range(LEASES)
    ]
    for client in clients:
        client.acquire(GpuRequest(1, 0.5), 20.0)
    await until(lambda: all(client.holding for client in clients), "twenty leases")
    before = {entry.entry_id for entry in service.entries()}
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, service.end, number)
    await loop.run_in_executor(None, service.start)
    started = clock()
    await until(
        lambda: all(client.holding and client.holding.reach.proven > started for client in clients),
        "everybody is back",
    )
    assert {entry.entry_id for entry in service.entries()} == before
    assert len(before) == LEASES
    assert not book.twice
    assert not book.kept_too_short
    await asyncio.gather(*(client.end() for client in clients))
