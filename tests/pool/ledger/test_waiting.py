"""Waiting for a turn: what ends it, what it reports, what it costs while nothing happens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from bitfusion_client.errors import (
    PoolUnreadable,
    WaitTimedOut,
)
from bitfusion_client.request import GpuRequest
from bitfusion_pool.ledger import waiting
from bitfusion_pool.ledger.entries import HELD
from bitfusion_pool.ledger.queue_position import QueuePosition
from bitfusion_pool.ledger.waiting import FIRST_PAUSE_S, pause, wait_for_turn
from bitfusion_pool.ledger.wake_up import WakeUp
from tests.pool.holders import Holders, somebody
from tests.pool.pool_client import PoolClient

LIMIT_S = 600  # no test gets near it


def test_a_wait_ends_with_the_grant(holders: Holders, client: PoolClient) -> None:
    holders.submit(GpuRequest(1))
    holder = holders.submit(GpuRequest(1))
    reported = []

    with client.ledger() as own:
        entry, lock = own.submit(GpuRequest(1), somebody("waiter"))

        def report(position: object) -> None:
            reported.append(position)
            holders.release(holder)

        granted = wait_for_turn(own, entry, LIMIT_S, report)
        assert (granted.state, granted.shares) == (HELD, holder.shares)
        assert len(reported) == 1
        assert os.listdir(client.folder / "bells") == []
        own.release(entry.entry_id)
        lock.close()


def test_a_wait_that_takes_too_long_leaves_no_entry(holders: Holders, client: PoolClient) -> None:
    holders.submit(GpuRequest(2))
    entry = holders.submit(GpuRequest(1))
    started = time.monotonic()
    with pytest.raises(WaitTimedOut) as caught:
        wait_for_turn(holders.ledger, entry, 0.25)
    assert time.monotonic() - started >= 0.25
    assert str(caught.value) == "timed out after 250ms waiting for 1 GPUs"
    assert holders.state(entry) is None
    assert os.listdir(client.folder / "bells") == []


def test_a_wait_that_fails_leaves_no_entry(holders: Holders) -> None:
    holders.submit(GpuRequest(2))
    entry = holders.submit(GpuRequest(1))

    def report(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait_for_turn(holders.ledger, entry, LIMIT_S, report)
    assert holders.state(entry) is None


def test_a_waiter_whose_entry_was_removed_fails(holders: Holders) -> None:
    holders.submit(GpuRequest(2))
    entry = holders.submit(GpuRequest(1))
    holders.ledger.release(entry.entry_id)
    with pytest.raises(PoolUnreadable, match="lost a waiting request"):
        wait_for_turn(holders.ledger, entry, LIMIT_S)


def test_those_in_front_look_often_those_behind_seldom() -> None:
    pauses = [pause(position) for position in range(1, 201)]
    assert pauses[0] <= 0.05
    assert pauses == sorted(pauses)
    assert sum(1 / seconds for seconds in pauses) < 300


class Rounds(WakeUp):
    """Does not sleep: notes the lengths in `pauses` and calls `before_each` instead."""

    pauses: list[float]
    before_each: Callable[[], None]

    def wait(self, seconds: float) -> bool:
        type(self).pauses.append(seconds)
        type(self).before_each()
        return False


def test_the_first_in_the_queue_takes_over_from_a_dead_holder_after_one_pause(
    holders: Holders, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = holders.submit(GpuRequest(2))
    entry = holders.submit(GpuRequest(1))
    monkeypatch.setattr(Rounds, "pauses", [], raising=False)
    monkeypatch.setattr(Rounds, "before_each", lambda: holders.die(holder), raising=False)
    monkeypatch.setattr(waiting, "WakeUp", Rounds)
    assert wait_for_turn(holders.ledger, entry, LIMIT_S).state == HELD
    assert Rounds.pauses == [FIRST_PAUSE_S]


def test_a_waiter_reports_its_position_again_after_a_while(
    holders: Holders, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = holders.submit(GpuRequest(2))
    entry = holders.submit(GpuRequest(1))
    reported: list[QueuePosition] = []

    def report(position: QueuePosition) -> None:
        reported.append(position)
        if len(reported) == 3:
            holders.release(holder)

    monkeypatch.setattr(waiting, "REFRESH_S", 0.0)
    wait_for_turn(holders.ledger, entry, LIMIT_S, report)
    assert [(one.position, one.length) for one in reported] == [(1, 1)] * 3
    assert reported[0].seen_at < reported[1].seen_at < reported[2].seen_at
