"""A ledger that is served fairly: places that are shown are those that are served."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry, Holder
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.queue.queue_position import OVERTAKEN
from bitfusion_pool.ledger.snapshot import take_snapshot
from tests.pool.pool_client import PoolClient

ANN, BOB, CAT = 1001, 1002, 1003
TWO_SERVERS = """
[[servers]]
name = "a"
address = "10.0.0.1"
[[servers.devices]]
[[servers]]
name = "b"
address = "10.0.0.2"
[[servers.devices]]
"""


class Users:
    """Requests of several users, in one process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.locks: dict[str, LeaseLock] = {}

    def submit(self, uid: int, gpus: int = 2, server: str = "") -> Entry:
        request = GpuRequest(gpus, servers=(server,) if server else ())
        entry, lock = self.ledger.submit(request, Holder(f"of {uid}", f"user {uid}", uid=uid))
        self.locks[entry.entry_id] = lock
        return entry

    def release(self, entry: Entry) -> None:
        self.ledger.release(entry.entry_id)
        self.locks.pop(entry.entry_id).close()

    def die(self, entry: Entry) -> None:
        self.locks.pop(entry.entry_id).close()

    def held(self) -> list[Entry]:
        return [entry for entry in self.ledger.entries() if entry.state == HELD]


@pytest.fixture
def users(client: PoolClient) -> Iterator[Users]:
    with client.ledger() as ledger:
        ledger.serve_fairly(True)
        found = Users(ledger)
        yield found
        for lock in found.locks.values():
            lock.close()


def test_a_first_request_goes_before_the_many_of_another(users: Users) -> None:
    users.submit(ANN)
    many = [users.submit(ANN) for _ in range(3)]
    first = users.submit(BOB)
    position = users.ledger.queue_position(first)
    assert (position.position, position.length) == (1, 4)
    assert position.why == ""
    position = users.ledger.queue_position(many[0])
    assert (position.position, position.length) == (2, 4)
    assert [entry.entry_id for entry in position.before] == [first.entry_id]
    assert position.why == OVERTAKEN
    assert re.search(
        "position 2 of 4; held by user 1001: .*; before you user 1002: of 1002 .*; "
        "why: you hold or wait for GPUs of this pool already, and others who have less are served first, "
        "also if they came up to half an hour later$",
        position.text(),
    )


def test_nobody_overtakes_in_this_order_even_if_it_would_fit(users: Users) -> None:
    users.submit(ANN, 1)
    users.submit(BOB, 2)
    small = users.submit(CAT, 1)
    position = users.ledger.queue_position(small)
    assert position.position == 2
    assert position.why.startswith("there is room for 1 GPU, but those before you are served first")


def test_the_order_is_noted_in_the_ledger_for_whoever_grants(users: Users, client: PoolClient) -> None:
    holder = users.submit(ANN)
    second, first = users.submit(ANN), users.submit(BOB)
    with client.ledger() as other:
        assert other.queue_position(first).position == 1
        snapshot = take_snapshot(other)
        assert [entry.entry_id for entry in snapshot.waiting] == [first.entry_id, second.entry_id]
        assert snapshot.positions == (1, 2)
        other.release(holder.entry_id)
    assert [entry.entry_id for entry in users.held()] == [first.entry_id]
    users.ledger.serve_fairly(False)
    third, fourth = users.submit(BOB), users.submit(CAT)
    with client.ledger() as other:
        assert [other.queue_position(one).position for one in (second, third, fourth)] == [1, 2, 3]


def test_a_change_of_the_order_grants_what_fits_now(users: Users) -> None:
    users.submit(ANN, 1)
    users.submit(ANN, 2)
    small = users.submit(BOB, 1)
    assert small.state == HELD
    users.release(small)
    users.ledger.serve_fairly(False)
    small = users.submit(BOB, 1)
    assert small.state == WAITING
    users.ledger.serve_fairly(True)
    assert [entry.holder.uid for entry in users.held()] == [ANN, BOB]


def test_the_end_of_a_lease_serves_who_is_shown_as_next(users: Users) -> None:
    holder = users.submit(ANN)
    dead, second, first = users.submit(CAT), users.submit(ANN), users.submit(BOB)
    assert users.ledger.queue_position(first).position == 2
    users.die(dead)
    users.release(holder)
    assert [entry.entry_id for entry in users.held()] == [first.entry_id]
    assert users.ledger.queue_position(second).position == 1


def test_a_ledger_that_was_strict_serves_who_waits_already_in_that_order(users: Users) -> None:
    users.ledger.serve_fairly(False)
    users.submit(ANN)
    second, first = users.submit(ANN), users.submit(BOB)
    users.ledger.serve_fairly(True)
    third = users.submit(ANN)
    newcomer = users.submit(CAT)
    waiting = take_snapshot(users.ledger).waiting
    assert [entry.number for entry in waiting] == [one.number for one in (second, first, newcomer, third)]


@pytest.mark.parametrize("seed", range(12))
def test_places_are_those_that_are_served(client: PoolClient, seed: int) -> None:
    client.configure(TWO_SERVERS)
    chance = random.Random(seed)
    with client.ledger() as ledger:
        ledger.serve_fairly(True)
        users = Users(ledger)
        for uid, server in ((ANN, "a"), (BOB, "b")):
            users.submit(uid, 1, server)
        for _ in range(25):
            users.submit(chance.choice((ANN, BOB, CAT)), 1, chance.choice(("a", "b", "")))
        while True:
            snapshot = take_snapshot(ledger)
            if not snapshot.waiting:
                break
            for entry, position in zip(snapshot.waiting, snapshot.positions, strict=True):
                found = ledger.queue_position(entry)
                competing = [one for one in snapshot.waiting if set(one.servers) & set(entry.servers)]
                assert (found.position, found.length) == (position, len(competing))
                assert list(found.before) == competing[: min(position - 1, 4)]
                assert list(found.directly_before) == competing[: position - 1][-1:]
            freed = chance.choice(users.held())
            server = freed.shares[0].server
            due = next((one for one in snapshot.waiting if server in one.servers), None)
            users.release(freed)
            if due is not None:
                served = ledger.entry(due.entry_id)
                assert served is not None
                assert served.state == HELD
        for entry in users.held():
            users.release(entry)


def test_many_places_are_computed_together(users: Users) -> None:
    """Each by itself would read the whole queue for each."""
    users.submit(ANN)
    waiting = [users.submit(1000 + number % 50) for number in range(150)]
    looks: list[str] = []
    users.ledger._db.set_trace_callback(looks.append)
    users.release(waiting.pop())
    positions = [users.ledger.queue_position(one).position for one in waiting]
    assert sorted(positions) == list(range(1, 150))
    assert sum("ORDER BY ifnull" in look for look in looks) == 1
