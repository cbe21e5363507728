"""Many waiters at once: served strictly in order, nobody lost, little to do while nothing happens."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger import waiting
from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.queue.queue_position import QueuePosition
from bitfusion_pool.ledger.waiting import FRONT, pause, wait_for_turn
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient
from tests.support.machine import scaled
from tests.support.waiting import wait_until

IDLE_S = 0.5
LIMIT_S = 200.0


class CountingLedger(Ledger):
    """Counts how often a waiter wakes up to look for changes, and how often it reads the queue."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.rounds = 0
        self.reads = 0

    def change_counter(self) -> int:
        self.rounds += 1
        return super().change_counter()

    def queue_position(self, entry: Entry, inside: str = "") -> QueuePosition:
        self.reads += 1
        return super().queue_position(entry, inside)


class Waiters:
    """Threads that each wait with a ledger of their own; `served` is in the order of their turns."""

    def __init__(self, client: PoolClient) -> None:
        self.client = client
        self.queued: list[str] = []
        self.served: list[str] = []
        self.ledgers: list[CountingLedger] = []
        self._failures: list[BaseException] = []
        self._go_on = threading.Event()
        self._go_on.set()
        self._threads: list[threading.Thread] = []

    def add(self) -> None:
        queued = threading.Event()
        thread = threading.Thread(target=self._wait, args=(queued,))
        thread.start()
        self._threads.append(thread)
        assert queued.wait(scaled(20))

    def _wait(self, queued: threading.Event) -> None:
        try:
            ledger = CountingLedger(self.client.environ)
            self.ledgers.append(ledger)
            with ledger:
                entry, lock = ledger.submit(GpuRequest(2), somebody())
                self.queued.append(entry.entry_id)
                queued.set()
                wait_for_turn(ledger, entry, scaled(LIMIT_S))
                self.served.append(entry.entry_id)
                self._go_on.wait()
                ledger.release(entry.entry_id)
                lock.close()
        except BaseException as error:
            self._failures.append(error)

    def hold(self) -> threading.Event:
        """Whoever is served keeps its GPUs until the event is set."""
        self._go_on.clear()
        return self._go_on

    def reads(self) -> list[int]:
        return [ledger.reads for ledger in self.ledgers]

    def rounds(self) -> list[int]:
        return [ledger.rounds for ledger in self.ledgers]

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert self._failures == []


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.long)])
def test_waiters_are_served_strictly_in_order_and_are_idle_before(
    client: PoolClient, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(waiting, "REFRESH_S", math.inf)
    # so that all of them have two rounds soon; what is counted below are the rounds of each
    monkeypatch.setattr(waiting, "pause", lambda position: min(pause(position), 0.5))
    waiters = Waiters(client)
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
        for _ in range(count):
            waiters.add()

        # The first round after the last change reads the queue; once a second one has begun, that is over.
        last_change = waiters.rounds()

        def all_have_seen_it() -> bool:
            return all(now >= then + 2 for now, then in zip(waiters.rounds(), last_change, strict=True))

        wait_until(all_have_seen_it)
        started, reads, rounds = time.monotonic(), waiters.reads(), waiters.rounds()
        time.sleep(IDLE_S)
        reads_after, rounds_after = waiters.reads(), waiters.rounds()
        idle_s = time.monotonic() - started
        assert reads_after == reads
        for position, (now, before) in enumerate(zip(rounds_after, rounds, strict=True), start=1):
            assert now - before <= idle_s / min(pause(position), 0.5) + 1

        ledger.release(entry.entry_id)
        lock.close()
        waiters.join()
        assert ledger.entries() == []
    assert waiters.served == waiters.queued
    assert len(waiters.served) == count
    assert os.listdir(client.folder / "locks") == os.listdir(client.folder / "bells") == []


def test_a_release_concerns_only_those_in_front(client: PoolClient, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * FRONT
    monkeypatch.setattr(waiting, "pause", lambda position: pause(position) if position <= FRONT else math.inf)
    waiters = Waiters(client)
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
        for _ in range(count):
            waiters.add()
        wait_until(lambda: all(rounds >= 1 for rounds in waiters.rounds()))
        rounds = waiters.rounds()
        held = waiters.hold()
        ledger.release(entry.entry_id)
        lock.close()
        wait_until(lambda: waiters.served == waiters.queued[:1])
        # those who became the last in front are not told; they see it at their next look
        assert waiters.rounds()[FRONT + 1 :] == rounds[FRONT + 1 :]
        held.set()
        waiters.join()
    assert waiters.served == waiters.queued
