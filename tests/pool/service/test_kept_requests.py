"""Requests that wait keep their place while the service is away, until their client is back."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, WAITING, Holder
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import End, Resume
from bitfusion_pool.messages.from_service import Granted, Refused, Released, Waiting
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.leases.lease_secrets import LeaseSecrets, read_key
from bitfusion_pool.service.leases.limits import UserLimits
from bitfusion_pool.service.leases.operations import LeaseTimes, PoolOperations
from bitfusion_pool.service.refusal import Refusal
from bitfusion_pool.service.sessions.entry_watch import EntryWatch
from bitfusion_pool.service.sessions.kept_requests import KeptRequests
from tests.pool.pool_client import PoolClient
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient
from tests.support.waiting import wait_until

BOTH = GpuRequest(2)
ME, OTHER = Peer(os.geteuid(), "me", 1), Peer(54321, "other", 2)


def come_back(client: SocketClient, waiting: Waiting) -> Waiting:
    return client.ask(Resume(waiting.entry, waiting.secret), Waiting)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_waits_when_the_service_goes_comes_back_to_its_place(
    service: RunningService, number: int
) -> None:
    holder, first, second = (service.client() for _ in range(3))
    holder.acquire(BOTH)
    places = [first.wait(BOTH, "first"), second.wait(BOTH, "second")]
    service.end(number)
    for client in (first, second):
        client.close()
    service.start()
    with service.client() as late, service.client() as second, service.client() as first:
        assert late.wait(BOTH, "late").position == 3
        assert come_back(second, places[1]).position == 2
        assert come_back(first, places[0]).position == 1
        holder.close()
        first.expect(Granted)
        assert len(first.fds) == 1
        first.close()
        second.expect(Granted)
        second.close()
        late.expect(Granted)


@pytest.mark.parametrize("found", [None, "", "no key", "ab" * 31, "ab" * 33])
def test_the_key_of_all_secrets_is_made_once(tmp_path: Path, found: str | None) -> None:
    """A service that makes a new one at each start loses every lease over the network."""
    if found is not None:
        (tmp_path / "lease_key").write_text(found)
        (tmp_path / "lease_key").chmod(0o600)
    key = read_key(str(tmp_path))
    assert (len(key), read_key(str(tmp_path))) == (32, key)


def test_a_place_that_is_served_while_its_client_is_away_is_served(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        place = waiter.wait(BOTH)
        service.end(signal.SIGKILL)
        waiter.close()
        holder.drop_locks()
    service.start()
    wait_until(lambda: [entry.state for entry in service.entries()] == [HELD], lambda: service.log, 3)
    with service.client() as back:
        granted = back.ask(Resume(place.entry, place.secret), Granted)
        assert granted.entry.entry_id == place.entry
        assert granted.secret == place.secret
        back.release(granted)
    assert service.entries() == []


def test_a_place_is_its_owners_alone(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        place = waiter.wait(BOTH)
        with service.client() as thief:
            # beside its living owner
            refused = thief.ask(Resume(place.entry, place.secret), Refused)
            assert refused.code == refusal_codes.LEASE_OVER
        service.end(signal.SIGKILL)
        waiter.close()
        service.start()
        with service.client() as thief, service.client() as back:
            for secret in ("", "x", place.secret[:-1]):
                refused = thief.ask(Resume(place.entry, secret), Refused)
                assert refused.code == refusal_codes.LEASE_OVER
            assert come_back(back, place).position == 1
            refused = thief.ask(Resume(place.entry, place.secret), Refused)
            assert refused.code == refusal_codes.LEASE_OVER
            # one request a connection
            assert back.ask(Resume(place.entry, place.secret), Refused).message == (
                "this connection waits for GPUs already"
            )


def test_a_kept_place_can_be_ended(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        place = waiter.wait(BOTH)
        service.end(signal.SIGTERM)
        service.start()
    with service.client() as client:
        assert client.ask(End(place.entry), Released).lease == place.entry
        assert client.ask(Resume(place.entry, place.secret), Refused).code == refusal_codes.LEASE_OVER


def test_a_restart_with_another_configuration_keeps_places(service: RunningService) -> None:
    """The ledger grants anew with it, before any client is back."""
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        place = waiter.wait(BOTH)
        service.end(signal.SIGKILL)
        service.configure('[[servers]]\nname = "local"\n[[servers.devices]]\ncount = 3\n')
        service.start()
        with service.client() as back:
            assert come_back(back, place).position == 1


def test_a_setting_says_how_long_places_are_kept(base: Path) -> None:
    service = RunningService(base, "--kept-s", "0.1").start()
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        waiter.wait(BOTH)
        service.end(signal.SIGKILL)
        service.start()
        try:
            service.until_entries(1)
        finally:
            service.end()


def test_a_client_that_does_not_come_back_loses_its_place(client: PoolClient) -> None:
    with client.ledger() as ledger:
        asyncio.run(_nobody_comes(ledger))


async def _nobody_comes(ledger: Ledger) -> None:
    loop = asyncio.get_running_loop()
    entry_watch = EntryWatch(ledger.states, loop)
    operations = PoolOperations(
        ledger, LeaseSecrets(b"key"), UserLimits(), "pool", LeaseTimes(15, 120, 5), entry_watch.changed
    )
    kept = KeptRequests(operations, entry_watch, loop, 0.05)
    holder, holders_lock = ledger.submit(BOTH, Holder("holder", "me", uid=ME.uid))
    waiter, lock = ledger.submit(BOTH, Holder("waiter", "me", uid=ME.uid))
    assert (holder.state, waiter.state) == (HELD, WAITING)
    kept.keep(waiter.entry_id, lock)
    with pytest.raises(Refusal):
        kept.take(waiter.entry_id, LeaseSecrets(b"key").secret(waiter.entry_id), OTHER)
    while ledger.entry(waiter.entry_id) is not None:
        await asyncio.sleep(0.01)
    assert lock.fd == -1
    assert kept.take(waiter.entry_id, "", ME) is None
    assert [entry.entry_id for entry in ledger.entries()] == [holder.entry_id]
    ledger.release(holder.entry_id)
    holders_lock.close()
