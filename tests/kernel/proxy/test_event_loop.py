"""The order in which the loop calls handlers and timers, and when it ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
import zmq

from bitfusion_kernel.proxy.event_loop import EventLoop


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def _soon(seconds: float = 0.0) -> float:
    return time.monotonic() + seconds


def test_timers_fire_once_each_in_the_order_they_are_due() -> None:
    loop, fired = EventLoop(), []
    now = _soon()
    loop.set_timer("late", now + 0.02, lambda: fired.append("late"))
    loop.set_timer("early", now + 0.01, lambda: fired.append("early"))
    loop.run(until=lambda: len(fired) == 2)
    assert fired == ["early", "late"]


def test_a_timer_of_the_same_name_is_replaced_and_a_cancelled_one_is_gone() -> None:
    loop, fired = EventLoop(), []
    loop.set_timer("a", _soon(), lambda: fired.append("first"))
    loop.set_timer("a", _soon(), lambda: fired.append("second"))
    loop.set_timer("b", _soon(), lambda: fired.append("b"))
    loop.cancel_timer("b")
    loop.cancel_timer("never set")
    loop.set_timer("end", _soon(0.02), lambda: fired.append("end"))
    loop.run(until=lambda: "end" in fired)
    assert fired == ["second", "end"]


def test_a_timer_may_set_itself_again() -> None:
    loop, fired = EventLoop(), []

    def again() -> None:
        fired.append(1)
        loop.set_timer("again", _soon(), again)

    again()
    loop.run(until=lambda: len(fired) == 4)
    assert len(fired) == 4


def test_a_timer_taken_away_by_another_that_is_due_does_not_fire() -> None:
    loop, fired = EventLoop(), []
    now = _soon()

    def first() -> None:
        fired.append("first")
        loop.cancel_timer("second")

    loop.set_timer("first", now, first)
    loop.set_timer("second", now, lambda: fired.append("second"))
    loop.set_timer("end", _soon(0.02), lambda: fired.append("end"))
    loop.run(until=lambda: "end" in fired)
    assert fired == ["first", "end"]


def test_a_handler_taken_away_by_an_earlier_one_is_not_called() -> None:
    loop, called = EventLoop(), []
    ends = [os.pipe(), os.pipe()]
    for number, (read_end, write_end) in enumerate(ends):
        os.write(write_end, b"x")

        def handle(number: int = number) -> None:
            called.append(number)
            for other, _ in ends:
                loop.off(other)

        loop.on(read_end, handle)
    loop.set_timer("end", _soon(0.02), lambda: called.append(9))
    loop.run(until=lambda: 9 in called)
    assert len(called) == 2
    for both in ends:
        for end in both:
            os.close(end)


def test_nothing_is_called_any_more_once_the_end_has_come(pipe: tuple[int, int]) -> None:
    loop, called = EventLoop(), []
    os.write(pipe[1], b"x")
    loop.on(pipe[0], lambda: called.append("handler"))
    loop.set_timer("t", _soon(), lambda: called.append("timer"))
    loop.run(until=lambda: bool(called))
    assert called == ["handler"]


def test_off_and_watches(pipe: tuple[int, int]) -> None:
    loop = EventLoop()
    loop.on(pipe[0], lambda: None)
    assert loop.watches(pipe[0])
    loop.off(pipe[0])
    loop.off(pipe[0])
    assert not loop.watches(pipe[0])


def test_a_socket_that_can_be_written_calls_only_who_asked_for_it() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://pair")
    right.connect("inproc://pair")
    loop, called = EventLoop(), []
    loop.on(left, lambda: called.append("readable"))
    loop.on(right, lambda: called.append("writable"), writable=True)
    loop.run(until=lambda: bool(called))
    assert called == ["writable"]
    left.close()
    right.close()
    context.term()


def test_signals_are_delivered_by_the_loop_in_order() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    loop = EventLoop()
    got: list[int] = []
    try:
        loop.on_signals(tuple(before), got.append)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert got == [], "never in the middle of something"
        loop.run(until=lambda: len(got) == 2)
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert got == [signal.SIGUSR1, signal.SIGUSR2]
