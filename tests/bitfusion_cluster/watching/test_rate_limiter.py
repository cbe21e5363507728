"""The rate limiter of the reconciler's requests, by a clock that the test moves."""

from __future__ import annotations

import threading

import pytest

from bitfusion_cluster.api.errors import ApiFailure, NoAnswer, ServerError, TooManyRequests
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from tests.bitfusion_cluster.watching.clock import Clock


def test_the_rate_limiter_lets_a_burst_through_and_then_so_many_a_second(clock: Clock) -> None:
    limiter = RateLimiter(10, 3, clock)
    assert [round(limiter.take(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    clock.now += 10
    assert [round(limiter.take(), 3) for _ in range(4)] == [0, 0, 0, 0.1], "unused tokens do not pile up"


def test_the_rate_limiter_is_paused_for_all(clock: Clock) -> None:
    limiter = RateLimiter(10, 3, clock)
    limiter.pause(5)
    assert round(limiter.take(), 3) == 5.1
    clock.now += 6
    assert limiter.take() == 0


def test_the_rate_limiter_ends_when_we_are_to_stop(clock: Clock) -> None:
    limiter, stopping = RateLimiter(0.001, 1, clock), threading.Event()
    assert limiter.wait(stopping)
    stopping.set()
    assert not limiter.wait(stopping)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (TooManyRequests(429, "TooManyRequests", "", 5.0), 5.1),
        (TooManyRequests(429, "TooManyRequests", ""), 1.1),
        (TooManyRequests(429, "TooManyRequests", "", 86_400.0), 60.1),
        (ServerError(500, "InternalError", "", 5.0), 0.0),
        (NoAnswer(), 0.0),
    ],
)
def test_a_429_pauses_for_as_long_as_it_says_within_a_bound(
    clock: Clock, error: ApiFailure, seconds: float
) -> None:
    limiter = RateLimiter(10, 3, clock)
    limiter.heed(error)
    assert round(limiter.take(), 3) == seconds
