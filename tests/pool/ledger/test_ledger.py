"""The ledger: shares, refusals, releases, client ids."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing

import pytest

from bitfusion_client.errors import (
    NeverSatisfiable,
    NoGpusAvailable,
    PoolUnreadable,
)
from bitfusion_client.kernel_state.activity import UNKNOWN, KernelActivity
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.ledger.storage.database import BUSY_S
from tests.pool.holders import Holders, somebody
from tests.pool.pool_client import PoolClient

KEY = "127.0.0.1:56001"


def test_shares_are_packed_until_nothing_is_left(holders: Holders) -> None:
    sizes = [0.5, 0.5, 0.25, 1, 0.75]
    entries = [holders.submit(GpuRequest(1, size)) for size in sizes]
    assert [entry.state for entry in entries] == [HELD, HELD, HELD, WAITING, WAITING]
    assert [entry.shares for entry in entries[:3]] == [
        (Share(KEY, 0, 8080),),
        (Share(KEY, 0, 8080),),
        (Share(KEY, 1, 4040),),
    ]
    assert holders.ledger.free_memory() == {(KEY, 0): 0, (KEY, 1): 12120}


def test_the_smallest_share_seen_in_the_wild_fits_fifty_times_a_gpu(holders: Holders) -> None:
    entries = [holders.submit(GpuRequest(1, 0.02)) for _ in range(101)]
    assert [entry.state for entry in entries] == [HELD] * 100 + [WAITING]


def test_what_can_never_be_served_leaves_nothing_behind(holders: Holders, client: PoolClient) -> None:
    with pytest.raises(NeverSatisfiable):
        holders.submit(GpuRequest(3))
    assert holders.ledger.entries() == []
    assert os.listdir(client.folder / "locks") == []


def test_a_request_that_may_not_wait_is_refused_and_leaves_no_entry(
    holders: Holders, client: PoolClient
) -> None:
    holders.submit(GpuRequest(1, 0.75))
    holders.submit(GpuRequest(1, 0.75))
    with pytest.raises(NoGpusAvailable) as caught:
        holders.ledger.submit(GpuRequest(2, 0.5), somebody(), wait=False)
    assert str(caught.value) == (
        "not enough GPUs available: 2 GPUs with 8080 MiB of memory each requested, 0 available on one server"
    )
    assert len(holders.ledger.entries()) == len(os.listdir(client.folder / "locks")) == 2


def test_releasing_twice_is_no_error(holders: Holders) -> None:
    entry, lock = holders.ledger.submit(GpuRequest(1), somebody())
    assert holders.ledger.release(entry.entry_id)
    assert not holders.ledger.release(entry.entry_id)
    lock.remove()


def test_the_client_id_stays_the_same_for_a_user(client: PoolClient) -> None:
    with client.ledger() as first, client.ledger() as second:
        assert first.client_id(7) == second.client_id(7) != second.client_id(8)


def test_what_a_kernel_does_goes_with_its_entry(holders: Holders) -> None:
    ledger, idle = holders.ledger, KernelActivity("idle", 5.0, 4.0, "x.ipynb")
    assert ledger.activities() == {}
    entry, other = holders.submit(GpuRequest(1)), holders.submit(GpuRequest(1))
    for activity in (KernelActivity("running", 3.0), idle):
        ledger.note_activity(entry.entry_id, activity)
    ledger.note_activity("0123456789abcdef", idle)
    assert [one.activity for one in ledger.entries()] == [idle, None]
    assert ledger.activities() == {entry.entry_id: idle}
    ledger.note_activity(other.entry_id, UNKNOWN)
    holders.release(entry)
    assert [one.activity for one in ledger.entries()] == [None]
    assert ledger.activities() == {}


def test_who_has_no_time_to_wait_for_others_does_not(holders: Holders, client: PoolClient) -> None:
    entry = holders.submit(GpuRequest(1))
    with closing(sqlite3.connect(client.folder / "ledger.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        with pytest.raises(PoolUnreadable):
            holders.ledger.note_activity(entry.entry_id, UNKNOWN, 0.05)
        assert time.monotonic() - begin < BUSY_S / 2
        db.execute("ROLLBACK")
