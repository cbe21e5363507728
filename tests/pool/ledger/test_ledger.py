"""The ledger through its own methods: order, places, refusals, liveness, damage."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.errors import (
    BitfusionError,
    NeverSatisfiable,
    NoGpusAvailable,
    PoolUnreadable,
    WaitTimedOut,
)
from bitfusion_client.request import GpuRequest
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.ledger import transaction
from bitfusion_pool.ledger.entries import HELD, REMOTE, RESERVED, WAITING, Entry
from bitfusion_pool.ledger.lease_lock import LeaseLock, is_held
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.waiting import pause, wait_for_turn
from tests.pool.pool_client import PoolClient, somebody

KEY = "127.0.0.1:56001"
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


class Party:
    """Entries of this test and their locks; `leave` is what an orderly holder does."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.locks: dict[str, LeaseLock] = {}

    def ask(self, request: GpuRequest, label: str = "x", kind: str = "process") -> Entry:
        entry, lock = self.ledger.submit(request, somebody(label), kind=kind)
        self.locks[entry.entry_id] = lock
        return entry

    def leave(self, entry: Entry) -> None:
        self.ledger.release(entry.entry_id)
        self.locks.pop(entry.entry_id).close()

    def die(self, entry: Entry) -> None:
        self.locks.pop(entry.entry_id).close()

    def end(self) -> None:
        for entry in self.ledger.entries():
            self.ledger.release(entry.entry_id)
        for lock in self.locks.values():
            lock.close()

    def state(self, entry: Entry) -> str | None:
        found = self.ledger.entry(entry.entry_id)
        return found.state if found else None


@pytest.fixture
def party(ledger: Ledger) -> Iterator[Party]:
    party = Party(ledger)
    yield party
    party.end()


def test_shares_are_packed_until_nothing_is_left(party: Party) -> None:
    sizes = [0.5, 0.5, 0.25, 1, 0.75]
    entries = [party.ask(GpuRequest(1, size)) for size in sizes]
    assert [entry.state for entry in entries] == [HELD, HELD, HELD, WAITING, WAITING]
    assert [entry.shares for entry in entries[:3]] == [
        (Share(KEY, 0, 8080),),
        (Share(KEY, 0, 8080),),
        (Share(KEY, 1, 4040),),
    ]
    assert party.ledger.free_memory() == {(KEY, 0): 0, (KEY, 1): 12120}


def test_the_smallest_share_seen_in_the_wild_fits_fifty_times_a_gpu(party: Party) -> None:
    entries = [party.ask(GpuRequest(1, 0.02)) for _ in range(101)]
    assert [entry.state for entry in entries] == [HELD] * 100 + [WAITING]


def test_nobody_overtakes_even_where_it_would_fit(party: Party) -> None:
    half = party.ask(GpuRequest(1, 0.5))
    both = party.ask(GpuRequest(2))
    tiny = party.ask(GpuRequest(1, 0.02))
    assert (both.state, tiny.state) == (WAITING, WAITING)
    party.leave(half)
    assert (party.state(both), party.state(tiny)) == (HELD, WAITING)
    party.leave(both)
    assert party.state(tiny) == HELD


def test_who_wants_another_server_does_not_wait_for_those_before(client: PoolClient) -> None:
    client.configure(TWO_SERVERS)
    with client.ledger() as ledger:
        party = Party(ledger)
        on_a = party.ask(GpuRequest(1, servers=("a",)))
        next_a = party.ask(GpuRequest(1, servers=("a",)))
        either = party.ask(GpuRequest(1))
        assert [one.state for one in (on_a, next_a, either)] == [HELD, WAITING, HELD]
        assert either.shares[0].server == "10.0.0.2:56001"
        again = party.ask(GpuRequest(1, servers=("b",)))
        assert ledger.queue_position(again).position == 1
        last = party.ask(GpuRequest(1))
        position = ledger.queue_position(last)
        assert (position.position, position.of) == (3, 3)
        party.end()


def test_places_count_from_one_and_name_who_is_ahead(party: Party) -> None:
    party.ask(GpuRequest(2, 0.6), "digits.ipynb")
    waiting = [party.ask(GpuRequest(1, memory_mib=16000), f"w{number}") for number in range(7)]
    position = party.ledger.queue_position(waiting[0])
    assert position.text() == (
        "Waiting for GPUs: place 1 of 7, ahead: tester: digits.ipynb (2 GPUs, partial 0.6, 0s)"
    )
    assert party.ledger.queue_position(waiting[6]).text() == (
        "Waiting for GPUs: place 7 of 7, ahead: tester: digits.ipynb (2 GPUs, partial 0.6, 0s); "
        + "; ".join(f"tester: w{number} (1 GPUs, 16000 MiB, 0s)" for number in range(4))
        + "; and 2 more"
    )
    party.leave(waiting[0])
    assert party.ledger.queue_position(waiting[6]).position == 6


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (59.9, "59s"), (60, "1m0s"), (245, "4m5s"), (10920, "3h2m")]
)
def test_others_see_for_how_long_somebody_holds(party: Party, seconds: float, shown: str) -> None:
    entry = party.ask(GpuRequest(1, 0.5), "a.py")
    assert entry.granted_at is not None
    assert entry.summary(entry.granted_at + seconds) == f"tester: a.py (1 GPUs, partial 0.5, {shown})"


def test_what_can_never_be_served_leaves_nothing_behind(party: Party, client: PoolClient) -> None:
    with pytest.raises(NeverSatisfiable):
        party.ask(GpuRequest(3))
    assert party.ledger.entries() == []
    assert os.listdir(client.folder / "locks") == []


def test_who_may_not_wait_is_refused_and_leaves_no_ticket(party: Party, client: PoolClient) -> None:
    party.ask(GpuRequest(1, 0.75))
    party.ask(GpuRequest(1, 0.75))
    with pytest.raises(NoGpusAvailable) as caught:
        party.ledger.submit(GpuRequest(2, 0.5), somebody(), wait=False)
    assert str(caught.value) == (
        "not enough GPUs available: 2 GPUs with 8080 MiB of memory each requested, 0 available on one server"
    )
    assert len(party.ledger.entries()) == len(os.listdir(client.folder / "locks")) == 2


def test_a_holder_without_its_lock_is_dead_and_the_next_one_gets_its_gpus(party: Party) -> None:
    holder = party.ask(GpuRequest(2))
    waiting = party.ask(GpuRequest(2))
    assert party.ledger.reap() == 0
    party.die(holder)
    assert party.ledger.reap() == 1
    assert (party.state(holder), party.state(waiting)) == (None, HELD)


def test_a_newcomer_finds_dead_holders_and_dead_waiters_by_itself(party: Party) -> None:
    holder, dead_waiter = party.ask(GpuRequest(2)), party.ask(GpuRequest(2))
    party.die(holder)
    party.die(dead_waiter)
    assert party.ask(GpuRequest(2)).state == HELD


def test_a_dead_waiter_is_never_granted(party: Party) -> None:
    holder, dead_waiter, waiter = (party.ask(GpuRequest(2)) for _ in range(3))
    party.die(dead_waiter)
    party.leave(holder)
    assert (party.state(dead_waiter), party.state(waiter)) == (None, HELD)


def test_a_deleted_lock_file_proves_nothing(party: Party, client: PoolClient) -> None:
    holder = party.ask(GpuRequest(2))
    (client.folder / "locks" / holder.entry_id).unlink()
    assert party.ledger.reap() == 0
    assert party.ask(GpuRequest(1)).state == WAITING


def test_a_reservation_lives_without_a_lock_until_its_time_is_over(party: Party) -> None:
    entry = party.ask(GpuRequest(2), kind=RESERVED)
    assert party.ledger.renew(entry.entry_id, 60)
    party.die(entry)
    assert party.ledger.reap() == 0
    assert party.ledger.renew(entry.entry_id, 0)
    assert party.ledger.reap() == 1
    assert not party.ledger.renew(entry.entry_id, 60)


def test_clients_together_keep_an_expired_reservation_alive(party: Party, client: PoolClient) -> None:
    entry = party.ask(GpuRequest(2), kind=RESERVED)
    party.die(entry)
    assert party.ledger.renew(entry.entry_id, 60)
    users = [LeaseLock.join(str(client.folder), entry.entry_id) for _ in range(2)]
    assert party.ledger.renew(entry.entry_id, 0)
    for user in users:
        assert party.ledger.reap() == 0
        user.close()
    assert party.ledger.reap() == 1


def test_a_lease_of_a_process_has_no_time_to_live(party: Party) -> None:
    assert not party.ledger.renew(party.ask(GpuRequest(1)).entry_id, 60)


def test_an_entry_of_another_machine_lives_by_its_time_alone(party: Party, client: PoolClient) -> None:
    entry = party.ask(GpuRequest(2), kind=REMOTE)
    waiting = party.ask(GpuRequest(1), kind=REMOTE)
    for one in (entry, waiting):
        assert party.ledger.renew(one.entry_id, 60)
        party.die(one)
        (client.folder / "locks" / one.entry_id).unlink()
    assert party.ledger.reap() == 0
    assert party.ledger.renew(entry.entry_id, 0)
    assert party.ledger.reap() == 1
    assert party.state(waiting) == HELD


def test_a_signal_right_after_the_grant_leaves_nothing_behind(
    party: Party, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "wake", interrupt)
    with pytest.raises(KeyboardInterrupt):
        party.ledger.submit(GpuRequest(2), somebody())
    with client.ledger() as other:
        assert other.entries() == []
    assert os.listdir(client.folder / "locks") == []


def test_a_change_that_cannot_be_written_keeps_the_lock_files(
    party: Party, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = party.ask(GpuRequest(2))
    party.die(holder)

    class FullDisk:
        def __init__(self, db: sqlite3.Connection) -> None:
            self.db = db
            self.in_transaction = True

        def execute(self, statement: str, *values: tuple[str | int | float, ...]) -> sqlite3.Cursor:
            if statement == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return self.db.execute(statement, *values)

        def close(self) -> None:
            self.db.close()

    with client.ledger() as ledger:
        ledger._db = FullDisk(ledger._db)  # type: ignore[assignment]  # as little of a connection as is used
        with pytest.raises(PoolUnreadable, match="database or disk is full"):
            ledger.reap()
    assert os.listdir(client.folder / "locks") == [holder.entry_id]
    assert party.ledger.reap() == 1
    assert os.listdir(client.folder / "locks") == []


def test_giving_back_twice_is_no_error(party: Party) -> None:
    entry = party.ask(GpuRequest(1))
    assert party.ledger.release(entry.entry_id)
    assert not party.ledger.release(entry.entry_id)
    party.locks.pop(entry.entry_id).remove()


def test_the_client_id_stays_the_same_for_a_user(client: PoolClient) -> None:
    with client.ledger() as first, client.ledger() as second:
        assert first.client_id(7) == second.client_id(7) != second.client_id(8)


def test_a_wait_ends_with_the_grant(party: Party, client: PoolClient) -> None:
    party.ask(GpuRequest(1))
    holder = party.ask(GpuRequest(1))
    told = []

    with client.ledger() as own:
        entry, lock = own.submit(GpuRequest(1), somebody("waiter"))

        def tell(position: object) -> None:
            told.append(position)
            party.leave(holder)

        granted = wait_for_turn(own, entry, 10, tell)
        assert (granted.state, granted.shares) == (HELD, holder.shares)
        assert len(told) == 1
        assert os.listdir(client.folder / "bells") == []
        own.release(entry.entry_id)
        lock.close()


def test_a_wait_that_takes_too_long_leaves_no_ticket(party: Party, client: PoolClient) -> None:
    party.ask(GpuRequest(2))
    entry = party.ask(GpuRequest(1))
    started = time.monotonic()
    with pytest.raises(WaitTimedOut) as caught:
        wait_for_turn(party.ledger, entry, 0.25)
    assert 0.25 <= time.monotonic() - started < 5
    assert str(caught.value) == "timed out after 250ms waiting for 1 GPUs"
    assert party.state(entry) is None
    assert os.listdir(client.folder / "bells") == []


def test_a_wait_that_fails_leaves_no_ticket(party: Party) -> None:
    party.ask(GpuRequest(2))
    entry = party.ask(GpuRequest(1))

    def tell(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait_for_turn(party.ledger, entry, 10, tell)
    assert party.state(entry) is None


def test_a_waiter_whose_entry_was_removed_is_told(party: Party) -> None:
    party.ask(GpuRequest(2))
    entry = party.ask(GpuRequest(1))
    party.ledger.release(entry.entry_id)
    with pytest.raises(PoolUnreadable, match="lost a waiting request"):
        wait_for_turn(party.ledger, entry, 10)


def test_those_in_front_look_often_those_behind_seldom() -> None:
    pauses = [pause(place) for place in range(1, 201)]
    assert pauses[0] <= 0.05
    assert pauses == sorted(pauses)
    assert sum(1 / seconds for seconds in pauses) < 300


def test_a_lock_made_while_a_cleaner_was_faster_is_made_again(
    ledger: Ledger, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = client.folder / "locks" / "name"
    real = os.fchmod
    removed: list[object] = []

    def fchmod(fd: int, mode: int) -> None:
        real(fd, mode)
        if not removed:
            path.unlink()
            removed.append(path)

    monkeypatch.setattr(os, "fchmod", fchmod)
    lock = LeaseLock.create(str(client.folder), "name", 0o666)
    assert removed
    assert path.exists()
    assert is_held(str(client.folder), "name")
    lock.remove()


def _truncate(folder: Path) -> str:
    (folder / "ledger.db").write_bytes(b"not a ledger" * 100)
    return "file is not a database"


def _older(folder: Path) -> str:
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    return "it has version 99, this program reads 1"


def _no_tables(folder: Path) -> str:
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("DROP TABLE meta")
    db.close()
    return "no such table: meta"


def _a_file_in_place(folder: Path) -> str:
    (folder / "ledger.db").unlink()
    (folder / "ledger.db").mkdir()
    return "unable to open database file"


@pytest.mark.parametrize("damage", [_truncate, _older, _no_tables, _a_file_in_place])
def test_a_damaged_ledger_is_told_in_one_clear_line(client: PoolClient, damage: object) -> None:
    client.ledger().close()
    assert callable(damage)
    why = damage(client.folder)
    path = client.folder / "ledger.db"
    with pytest.raises(PoolUnreadable) as caught:
        client.ledger()
    assert str(caught.value) == f"pool ledger {path} is unreadable: {why}"
    done = client.do("run", "-n", "1", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: pool ledger {path} is unreadable: {why}\n"


def test_a_folder_that_cannot_be_made_is_told_too(client: PoolClient) -> None:
    client.folder.write_text("a file")
    with pytest.raises(BitfusionError) as caught:
        client.ledger()
    assert str(caught.value) == f"pool ledger {client.folder}/ledger.db is unreadable: Not a directory"


def test_everybody_may_use_the_default_pool(ledger: Ledger, client: PoolClient) -> None:
    entry, lock = ledger.submit(GpuRequest(1), somebody())
    assert client.folder.stat().st_mode & 0o7777 == 0o777
    assert (client.folder / "ledger.db").stat().st_mode & 0o777 == 0o666
    assert (client.folder / "locks" / entry.entry_id).stat().st_mode & 0o777 == 0o666
    ledger.release(entry.entry_id)
    lock.close()
