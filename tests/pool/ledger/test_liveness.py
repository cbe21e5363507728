"""Which entries are dead: by lease lock, by time to live, by neither."""

from __future__ import annotations

import os

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, REMOTE, RESERVED, WAITING
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from tests.pool.holders import Holders
from tests.pool.pool_client import PoolClient


def test_a_holder_without_its_lock_is_dead_and_the_next_one_gets_its_gpus(holders: Holders) -> None:
    holder = holders.submit(GpuRequest(2))
    waiting = holders.submit(GpuRequest(2))
    assert holders.ledger.reap() == 0
    holders.die(holder)
    assert holders.ledger.reap() == 1
    assert (holders.state(holder), holders.state(waiting)) == (None, HELD)


def test_a_newcomer_finds_dead_holders_and_dead_waiters_by_itself(holders: Holders) -> None:
    holder, dead_waiter = holders.submit(GpuRequest(2)), holders.submit(GpuRequest(2))
    holders.die(holder)
    holders.die(dead_waiter)
    assert holders.submit(GpuRequest(2)).state == HELD


def test_a_dead_waiter_is_never_granted(holders: Holders) -> None:
    holder, dead_waiter, waiter = (holders.submit(GpuRequest(2)) for _ in range(3))
    holders.die(dead_waiter)
    holders.release(holder)
    assert (holders.state(dead_waiter), holders.state(waiter)) == (None, HELD)


def test_a_deleted_lock_file_proves_nothing(holders: Holders, client: PoolClient) -> None:
    holder = holders.submit(GpuRequest(2))
    (client.folder / "locks" / holder.entry_id).unlink()
    assert holders.ledger.reap() == 0
    assert holders.submit(GpuRequest(1)).state == WAITING


def test_a_reservation_lives_without_a_lock_until_its_time_is_over(holders: Holders) -> None:
    entry = holders.submit(GpuRequest(2), kind=RESERVED)
    assert holders.ledger.renew(entry.entry_id, 60)
    holders.die(entry)
    assert holders.ledger.reap() == 0
    assert holders.ledger.renew(entry.entry_id, 0)
    assert holders.ledger.reap() == 1
    assert not holders.ledger.renew(entry.entry_id, 60)


def test_clients_together_keep_an_expired_reservation_alive(holders: Holders, client: PoolClient) -> None:
    entry = holders.submit(GpuRequest(2), kind=RESERVED)
    holders.die(entry)
    assert holders.ledger.renew(entry.entry_id, 60)
    users = [LeaseLock.join(str(client.folder), entry.entry_id) for _ in range(2)]
    assert holders.ledger.renew(entry.entry_id, 0)
    for user in users:
        assert holders.ledger.reap() == 0
        user.close()
    assert holders.ledger.reap() == 1


def test_a_lease_of_a_process_has_no_time_to_live(holders: Holders) -> None:
    assert not holders.ledger.renew(holders.submit(GpuRequest(1)).entry_id, 60)


def test_an_entry_of_another_machine_lives_until_its_service_ends_it(
    holders: Holders, client: PoolClient
) -> None:
    entry = holders.submit(GpuRequest(2), kind=REMOTE)
    waiting = holders.submit(GpuRequest(1), kind=REMOTE)
    assert os.listdir(client.folder / "locks") == []
    for one in (entry, waiting):
        assert not holders.ledger.renew(one.entry_id, 60)
        holders.die(one)
    assert holders.ledger.reap() == 0
    assert holders.ledger.release(entry.entry_id)
    assert holders.state(waiting) == HELD
