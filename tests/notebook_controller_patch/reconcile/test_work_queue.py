"""The work queue and its neighbours, by a clock that the test moves."""

from __future__ import annotations

import threading
import time

import pytest

from notebook_controller_patch.reconcile.backoff import Backoff, Pace, Restraint
from notebook_controller_patch.reconcile.work_queue import WorkQueue

A, B = ("ann", "a"), ("ann", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
    began = time.monotonic()
    assert work.get(30) is None
    assert time.monotonic() - began < 10
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
    deadline = time.monotonic() + 10
    while not work.idle() and time.monotonic() < deadline:
        time.sleep(0.01)
    work.close()
    for thread in threads:
        thread.join(5)
    assert sorted(seen) == sorted(keys)


def test_backoff_doubles_up_to_30_s_and_is_shortened_at_random() -> None:
    longest = Backoff(chance=lambda: 0.0)
    assert [longest.next() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    longest.reset()
    assert longest.next() == 1
    shortest = Backoff(chance=lambda: 1.0)
    assert [shortest.next() for _ in range(6)] == [0.5, 1, 2, 4, 8, 15]
    for _ in range(2000):
        assert shortest.next() == 15
    assert {round(Backoff().next(), 6) for _ in range(5)} != {1.0}


def test_backoff_waits_as_long_as_the_server_asks() -> None:
    assert Backoff(chance=lambda: 0.5).next(retry_after=20) == 20.5
    assert Backoff(chance=lambda: 0.0).next(retry_after=0) == 1


def test_pace_lets_a_burst_through_and_then_so_many_a_second(clock: Clock) -> None:
    pace = Pace(10, 3, clock)
    assert [round(pace.take(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    clock.now += 10
    assert [round(pace.take(), 3) for _ in range(4)] == [0, 0, 0, 0.1], "unused turns do not pile up"


def test_pace_is_paused_for_all(clock: Clock) -> None:
    pace = Pace(10, 3, clock)
    pace.pause(5)
    assert round(pace.take(), 3) == 5.1
    clock.now += 6
    assert pace.take() == 0


def test_pace_ends_when_we_are_to_stop(clock: Clock) -> None:
    pace, stopping = Pace(0.001, 1, clock), threading.Event()
    assert pace.wait(stopping)
    stopping.set()
    assert not pace.wait(stopping)


def test_a_quarrel_is_slowed_down(clock: Clock) -> None:
    restraint = Restraint(free=3, first=1, longest=4, calm=100, clock=clock)
    waits = []
    for _ in range(7):
        waits.append(restraint.delay(A))
        clock.now += waits[-1]
        restraint.note(A)
    assert waits == [0, 0, 0, 1, 2, 4, 4]
    assert restraint.delay(B) == 0, "of this key only"
    clock.now += 100
    assert restraint.delay(A) == 0, "forgotten after a calm time"


def test_who_is_gone_is_forgotten(clock: Clock) -> None:
    restraint = Restraint(free=0, clock=clock)
    restraint.note(A)
    assert restraint.delay(A) > 0
    restraint.forget(A)
    assert restraint.delay(A) == 0
