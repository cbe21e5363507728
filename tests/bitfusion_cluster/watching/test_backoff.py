"""Backoff: how long to wait after failures."""

from __future__ import annotations

from bitfusion_cluster.watching.backoff import Backoff


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
