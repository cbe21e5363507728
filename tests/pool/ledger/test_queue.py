"""The queue: strictly first come, first served among those that compete; positions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bitfusion_client.request import GpuRequest
from bitfusion_pool.ledger import transaction
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry
from bitfusion_pool.ledger.queue_position import QueuePosition
from tests.pool.holders import Holders
from tests.pool.pool_client import PoolClient

MANY = 200
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


def test_a_request_never_overtakes_even_if_it_would_fit(holders: Holders) -> None:
    half = holders.submit(GpuRequest(1, 0.5))
    both = holders.submit(GpuRequest(2))
    tiny = holders.submit(GpuRequest(1, 0.02))
    assert (both.state, tiny.state) == (WAITING, WAITING)
    holders.release(half)
    assert (holders.state(both), holders.state(tiny)) == (HELD, WAITING)
    holders.release(both)
    assert holders.state(tiny) == HELD


def test_requests_for_different_servers_do_not_wait_for_each_other(client: PoolClient) -> None:
    client.configure(TWO_SERVERS)
    with client.ledger() as ledger:
        holders = Holders(ledger)
        on_a = holders.submit(GpuRequest(1, servers=("a",)))
        next_a = holders.submit(GpuRequest(1, servers=("a",)))
        either = holders.submit(GpuRequest(1))
        assert [one.state for one in (on_a, next_a, either)] == [HELD, WAITING, HELD]
        assert either.shares[0].server == "10.0.0.2:56001"
        again = holders.submit(GpuRequest(1, servers=("b",)))
        assert ledger.queue_position(again).position == 1
        last = holders.submit(GpuRequest(1))
        position = ledger.queue_position(last)
        assert (position.position, position.length) == (3, 3)
        holders.end()


def test_positions_count_from_one_and_name_who_is_ahead(holders: Holders) -> None:
    holders.submit(GpuRequest(2, 0.6), "digits.ipynb")
    waiting = [holders.submit(GpuRequest(1, memory_mib=16000), f"w{number}") for number in range(7)]

    def text(entry: Entry) -> str:
        found = holders.ledger.queue_position(entry)
        then = 0.0  # so that all times are 0s, however slow this machine is
        return QueuePosition(found.position, found.length, found.ahead, then).text()

    assert text(waiting[0]) == (
        "Waiting for GPUs: place 1 of 7, ahead: tester: digits.ipynb (2 GPUs, partial 0.6, 0s)"
    )
    assert text(waiting[6]) == (
        "Waiting for GPUs: place 7 of 7, ahead: tester: digits.ipynb (2 GPUs, partial 0.6, 0s); "
        + "; ".join(f"tester: w{number} (1 GPUs, 16000 MiB, 0s)" for number in range(4))
        + "; and 2 more"
    )
    holders.release(waiting[0])
    assert holders.ledger.queue_position(waiting[6]).position == 6


def test_many_requests_are_granted_one_by_one_in_the_order_they_came(
    holders: Holders, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    monkeypatch.setattr(transaction, "wake", lambda _, entry_id: woken.append(entry_id))
    entries = [holders.submit(GpuRequest(2)) for _ in range(MANY + 1)]
    for served, following in pairwise(entries):
        woken.clear()
        holders.release(served)
        assert holders.state(following) == HELD
        assert set(holders.ledger.free_memory().values()) == {0}
        # it, and the one that is the next now; nobody else has anything to do
        number = entries.index(following)
        assert woken == [entry.entry_id for entry in entries[number : number + 2]]
