"""The work queue: each key once at a time, delays, retries; by a clock that the test moves."""

from __future__ import annotations

import threading

import pytest

from bitfusion_cluster.watching.cache import Key
from bitfusion_cluster.watching.work_queue import WorkQueue
from tests.bitfusion_cluster.watching.clock import Clock
from tests.support.machine import scaled
from tests.support.waiting import wait_until

A, B = ("ann", "a"), ("ann", "b")


@pytest.fixture
def work(clock: Clock) -> WorkQueue:
    return WorkQueue(first_delay=1, longest_delay=8, clock=clock, chance=lambda: 0.0)


def test_a_key_added_often_comes_once(work: WorkQueue) -> None:
    for _ in range(3):
        work.add(A)
    work.add(B)
    assert work.depth() == 2
    assert [work.get(0), work.get(0), work.get(0)] == [A, B, None]


def test_a_key_added_while_a_worker_has_it_comes_again_afterwards(work: WorkQueue) -> None:
    work.add(A)
    assert work.get(0) == A
    work.add(A)
    work.add(A)
    assert work.get(0) is None, "never two workers on one notebook"
    assert not work.idle()
    work.done(A)
    assert work.get(0) == A
    work.done(A)
    assert work.get(0) is None
    assert work.idle()


def test_namespaces_take_turns(work: WorkQueue) -> None:
    for number in range(4000):
        work.add(("flood", str(number)))
    assert work.get(0) == ("flood", "0")
    work.add(A)
    work.add(B)
    assert [work.get(0) for _ in range(4)] == [("flood", "1"), A, ("flood", "2"), B]


def test_each_failure_of_a_key_waits_twice_as_long(work: WorkQueue, clock: Clock) -> None:
    assert [work.retry(A) for _ in range(5)] == [1, 2, 4, 8, 8]
    assert work.retry(B) == 1, "of this key only"
    work.forget(A)
    assert work.retry(A) == 1


def test_a_key_waits_for_its_time(work: WorkQueue, clock: Clock) -> None:
    work.add(A)
    assert work.get(0) == A
    work.retry(A)
    work.done(A)
    assert work.get(0) is None
    assert work.depth() == 1
    clock.now += 1
    assert work.get(0) == A


def test_retry_after_is_the_least(work: WorkQueue) -> None:
    assert work.retry(A, at_least=5) == 5


def test_the_earliest_time_counts(work: WorkQueue, clock: Clock) -> None:
    work.add(A, 50)
    work.add(A, 10)
    work.add(A, 30)
    clock.now += 10
    assert work.get(0) == A
    work.done(A)
    clock.now += 50
    assert work.get(0) is None


def test_an_event_wakes_a_key_that_waits(work: WorkQueue, clock: Clock) -> None:
    work.retry(A)
    work.add(A)
    assert work.get(0) == A
    work.done(A)
    clock.now += 60
    assert work.get(0) is None


def test_closing_ends_a_worker_that_waits() -> None:
    work = WorkQueue()
    threading.Timer(0.1, work.close).start()
    assert work.get(3600) is None
    work.add(A)
    assert work.get(0) is None


def test_a_worker_wakes_when_the_time_has_come() -> None:
    work = WorkQueue()
    work.add(A, 0.1)
    assert work.get(10) == A


def test_workers_share_the_keys() -> None:
    work = WorkQueue()
    seen: list[tuple[str, str]] = []

    def worker() -> None:
        while (key := work.get(5)) is not None:
            seen.append(key)
            work.done(key)

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    keys = [("ann", str(number)) for number in range(500)]
    for key in keys:
        work.add(key)
    wait_until(work.idle)
    work.close()
    for thread in threads:
        thread.join(scaled(5))
    assert sorted(seen) == sorted(keys)


def test_a_key_whose_handling_raises_holds_up_no_other(
    work: WorkQueue, caplog: pytest.LogCaptureFixture
) -> None:
    done = []

    def handle(key: Key) -> None:
        done.append(key)
        if key == A:
            raise KeyError("of a bug")
        work.close()

    work.add(A)
    work.add(B)
    work.work_off(handle)
    assert done == [A, B]
    assert work.idle()
    assert "a key was left undone" in caplog.text
