"""Waiting for a turn: what ends it, what it reports, what it costs while nothing happens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from bitfusion_client.errors import (
    ClientFailed,
    WaitTimedOut,
)
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger import waiting
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry
from bitfusion_pool.ledger.files.wake_up import WakeUp
from bitfusion_pool.ledger.queue.queue_position import QueuePosition
from bitfusion_pool.ledger.waiting import FIRST_PAUSE_S, FRONT, REFRESH_S, pause, wait_for_turn
from tests.pool.holders import Holders, somebody
from tests.pool.pool_client import PoolClient
from tests.support.waiting import wait_until

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
    with pytest.raises(ClientFailed, match="somebody ended this request while it waited"):
        wait_for_turn(holders.ledger, entry, LIMIT_S)


def test_those_in_front_look_often_those_behind_seldom() -> None:
    pauses = [pause(position) for position in range(1, 201)]
    assert pauses[0] <= 0.05
    assert pauses == sorted(pauses)
    assert sum(1 / seconds for seconds in pauses[4:]) < 30
    assert pauses[-1] == REFRESH_S


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


def test_a_killed_waiter_leaves_no_pipe(client: PoolClient, holders: Holders) -> None:
    held = holders.submit(GpuRequest(2))
    waiter = client.start("run", "-n", "1", "--", "true")
    client.until_waiting(1)
    wait_until(lambda: os.listdir(client.folder / "bells"))
    waiter.kill()
    waiter.communicate()
    holders.release(held)
    assert client.entries(WAITING) == []
    assert os.listdir(client.folder / "bells") == os.listdir(client.folder / "locks") == []


def test_a_waiter_that_somebody_ends_by_force_hears_of_it_at_once(
    holders: Holders, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "pause", lambda _: LIMIT_S)
    holders.submit(GpuRequest(2))
    entry = holders.submit(GpuRequest(1))

    def report(_: object) -> None:
        with client.ledger() as other:
            other.release(entry.entry_id)

    with pytest.raises(ClientFailed) as caught:
        wait_for_turn(holders.ledger, entry, LIMIT_S, report)
    assert caught.value.user_message == (
        "The `bitfusion` client failed.\n"
        "Answer: somebody ended this request while it waited (bitfusion-pool reap --force)\n"
        "What to do: run the cell or the command again"
    )


def test_behind_the_front_a_waiter_looks_only_at_the_one_before_it(
    holders: Holders, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders.submit(GpuRequest(2))
    queued = [holders.submit(GpuRequest(2)) for _ in range(FRONT + 1)]
    looked_at = set()

    def is_alive(entry: Entry) -> bool:
        looked_at.add(entry.entry_id)
        return True

    monkeypatch.setattr(holders.ledger, "is_alive", is_alive)
    monkeypatch.setattr(Rounds, "pauses", [], raising=False)

    def end() -> None:
        if len(Rounds.pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Rounds, "before_each", end, raising=False)
    monkeypatch.setattr(waiting, "WakeUp", Rounds)
    with pytest.raises(KeyboardInterrupt):
        wait_for_turn(holders.ledger, queued[-1], LIMIT_S)
    assert Rounds.pauses == [pause(FRONT + 1)] * 3
    assert looked_at == {queued[-2].entry_id}
