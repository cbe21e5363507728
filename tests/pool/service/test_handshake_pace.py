"""Handshakes of one address: so many at once, so many each second, the others in their turn or not at all."""

from __future__ import annotations

import pytest

from bitfusion_pool.service.connections.tls_listener import HandshakePace


def test_after_a_pause_two_seconds_of_handshakes_may_begin_at_once() -> None:
    pace = HandshakePace(10)
    assert [pace.take_turn("a", 100.0, 5.0) for _ in range(20)] == [0.0] * 20
    later = [pace.take_turn("a", 100.0, 5.0) for _ in range(3)]
    assert later == pytest.approx([0.1, 0.2, 0.3])
    assert pace.take_turn("b", 100.0, 5.0) == 0.0  # another address waits for none of them


def test_in_the_long_run_there_are_so_many_each_second() -> None:
    pace = HandshakePace(10)
    begun = []
    for step in range(1000):  # ten seconds, a hundred each
        now = 100 + step / 100
        wait = pace.take_turn("a", now, 5.0)
        if wait is not None:
            begun.append(now + wait)
    assert begun == sorted(begun)
    assert sum(at < 110 for at in begun) == pytest.approx(20 + 10 * 10, abs=1)


def test_who_would_wait_too_long_takes_no_turn_and_nobody_waits_for_it_later() -> None:
    pace = HandshakePace(1)
    for _ in range(1000):
        pace.take_turn("a", 100.0, 5.0)
    assert pace.take_turn("a", 100.0, 5.0) is None
    assert pace.take_turn("a", 104.5, 5.0) == pytest.approx(1.5)


def test_addresses_that_are_idle_are_forgotten() -> None:
    pace = HandshakePace(1)
    for number in range(5000):
        pace.take_turn(f"of {number}", 100.0 + number, 5.0)
    assert len(pace._due) < 4096
    for number in range(10_000):
        pace.take_turn(f"at once {number}", 9000.0, 5.0)
    assert len(pace._due) <= 4096
