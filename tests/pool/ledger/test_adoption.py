"""Requests of a service that has ended are taken over by the next one; leases that are in use are not."""

from __future__ import annotations

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.adoption import adopt_requests
from bitfusion_pool.ledger.entries import RESERVED
from tests.pool.holders import Holders
from tests.pool.pool_client import PoolClient


def adopted(folder: str) -> list[str]:
    locks = adopt_requests(folder)
    for lock in locks.values():
        lock.close()
    return list(locks)


def test_what_nobody_holds_is_adopted_and_what_is_in_use_is_not(holders: Holders) -> None:
    half = GpuRequest(1, 0.5)
    in_use, ended, untold = (holders.submit(half) for _ in range(3))
    reserved = holders.submit(half, kind=RESERVED)
    assert holders.ledger.renew(reserved.entry_id, 60)
    waiting, watched, reserves = (
        holders.submit(GpuRequest(2)),
        holders.submit(GpuRequest(2)),
        holders.submit(GpuRequest(2), kind=RESERVED),
    )
    for entry in (in_use, ended):
        holders.pass_on(entry)
    for entry in (ended, untold, reserved, waiting, reserves):
        holders.die(entry)
    folder = holders.ledger.folder
    assert adopted(folder) == [one.entry_id for one in (untold, waiting, reserves)]
    assert holders.state(in_use) == holders.state(reserved) == "held"
    assert holders.state(watched) == "waiting"


def test_an_adopted_request_is_not_dead(holders: Holders) -> None:
    holders.submit(GpuRequest(2))
    waiting = holders.submit(GpuRequest(2))
    holders.die(waiting)
    locks = adopt_requests(holders.ledger.folder)
    assert holders.ledger.reap() == 0
    assert holders.ledger.queue_position(waiting).position == 1
    locks[waiting.entry_id].close()
    assert holders.ledger.reap() == 1


def test_a_request_whose_lock_file_was_deleted_is_left_alone(holders: Holders, client: PoolClient) -> None:
    holders.submit(GpuRequest(2))
    waiting = holders.submit(GpuRequest(2))
    (client.folder / "locks" / waiting.entry_id).unlink()
    holders.die(waiting)
    assert adopted(holders.ledger.folder) == []


def test_a_folder_without_a_ledger_has_nothing_to_adopt(holders: Holders, client: PoolClient) -> None:
    for path in client.folder.glob("ledger.db*"):
        path.unlink()
    assert adopted(holders.ledger.folder) == []
