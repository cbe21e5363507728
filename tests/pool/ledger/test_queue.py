"""The queue: strictly first come, first served among those that compete; positions."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry
from bitfusion_pool.ledger.storage import transaction
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
        return re.sub(r"since [^)]+", "since T", holders.ledger.queue_position(entry).text())

    assert text(waiting[0]) == (
        "Waiting for GPUs: position 1 of 7; held by tester: digits.ipynb (2 GPUs × 60 %, since T)"
    )
    assert text(waiting[6]) == (
        "Waiting for GPUs: position 7 of 7; held by tester: digits.ipynb (2 GPUs × 60 %, since T); "
        + "; ".join(f"before you tester: w{number} (1 GPU × 16000 MiB, since T)" for number in range(4))
        + "; before you 2 more"
    )
    holders.release(waiting[0])
    assert holders.ledger.queue_position(waiting[6]).position == 6


def test_the_one_directly_before_is_known_in_a_queue_of_any_length(client: PoolClient) -> None:
    client.configure(TWO_SERVERS)
    with client.ledger() as ledger:
        holders = Holders(ledger)
        for server in ("a", "b"):
            holders.submit(GpuRequest(1, servers=(server,)))
        queued = []
        for number in range(20):
            queued.append(holders.submit(GpuRequest(1, servers=("a",)), f"a{number}"))
            holders.submit(GpuRequest(1, servers=("b",)), f"b{number}")
        either = holders.submit(GpuRequest(1), "either")
        for number, entry in enumerate(queued):
            found = ledger.queue_position(entry)
            assert (found.position, found.length, found.ahead) == (number + 1, 21, number + 1)
            assert [one.holder.label for one in found.before] == [f"a{one}" for one in range(min(number, 4))]
            assert [one.entry_id for one in found.directly_before] == (
                [queued[number - 1].entry_id] if number else []
            )
        found = ledger.queue_position(either)
        assert (found.position, found.length, found.ahead) == (41, 41, 42)
        assert [one.holder.label for one in found.before] == ["a0", "b0", "a1", "b1"]
        assert [one.holder.label for one in found.directly_before] == ["b19"]
        assert found.text().endswith("; before you 36 more")
        holders.end()


def test_a_request_that_would_fit_is_told_why_it_waits(holders: Holders) -> None:
    holders.submit(GpuRequest(1), "digits.ipynb")
    large = holders.submit(GpuRequest(2), "large.ipynb")
    small = holders.submit(GpuRequest(1, 0.25), "small.ipynb")
    assert holders.ledger.queue_position(large).why == ""
    position = holders.ledger.queue_position(small)
    assert position.why == (
        "there is room for 1 GPU × 25 %, but those before you are served first, "
        "so that large requests get a turn"
    )
    assert position.text().endswith(f"; why: {position.why}")
    holders.submit(GpuRequest(1), "other.ipynb")
    holders.release(large)
    assert holders.state(small) == HELD


@pytest.mark.parametrize(
    ("label", "who"), [("a.ipynb", "this notebook"), ("python a.py", "the program that runs this command")]
)
def test_a_command_inside_the_holder_is_told_so(holders: Holders, label: str, who: str) -> None:
    own = holders.submit(GpuRequest(1, 0.5), label)
    other = holders.submit(GpuRequest(1), "other.ipynb")
    inside = holders.submit(GpuRequest(2), label)
    position = holders.ledger.queue_position(inside, own.entry_id)
    assert position.blocked == f"{who} holds 1 GPU × 50 % itself and keeps it while this command waits"
    assert position.why == f"{position.blocked}: ask for less, or stop this command and run it elsewhere"
    assert f"; held by {who}: tester: {label} (1 GPU × 50 %, since " in position.text()
    fits = holders.submit(GpuRequest(1), label)
    assert "itself" not in holders.ledger.queue_position(fits, own.entry_id).why
    assert "itself" not in holders.ledger.queue_position(inside, other.entry_id + "x").why
    assert holders.ledger.queue_position(inside).blocked == ""


def test_all_that_a_command_is_inside_of_counts(holders: Holders) -> None:
    outer = holders.submit(GpuRequest(1, 0.5), "a.ipynb")
    inner = holders.submit(GpuRequest(1, 0.4), "python a.py")
    blocked = holders.submit(GpuRequest(2, 0.5), "true")
    chain = f"{outer.entry_id} {inner.entry_id}"
    assert holders.ledger.queue_position(blocked, inner.entry_id).blocked == ""
    assert holders.ledger.queue_position(blocked, chain).blocked == (
        "this notebook holds 1 GPU × 50 % and the program that runs this command holds 1 GPU × 40 % itself "
        "and keeps it while this command waits"
    )


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
        # the one that is gone, it, and the one that is the next now; nobody else has anything to do
        number = entries.index(following)
        assert woken == [entry.entry_id for entry in entries[number - 1 : number + 2]]
