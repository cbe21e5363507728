"""A kernel that is ready only with its GPU: what is held until then, and what the log tells."""

from __future__ import annotations

import time

import pytest

from bitfusion_kernel.proxy.requests.start_up_wait import TELL_AFTER, TELL_EVERY, StartUpWait
from tests.kernel.proxy.parts import Parts

TIMER = "start-up wait"


def test_only_the_request_that_means_ready_is_held_and_only_until_the_end() -> None:
    start_up = StartUpWait(Parts().loop, Parts().lifecycle, lasts=True)
    assert start_up.holds("kernel_info_request")
    assert not start_up.holds("complete_request")
    assert start_up.end()
    assert not start_up.holds("kernel_info_request")
    assert not start_up.end(), "it ends once"


def test_any_other_kernel_is_ready_at_once() -> None:
    parts = Parts()
    start_up = StartUpWait(parts.loop, parts.lifecycle, lasts=False)
    assert not start_up.holds("kernel_info_request")
    assert not start_up.end()
    assert TIMER not in parts.loop.timers


def test_the_log_tells_once_a_minute_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr("bitfusion_kernel.proxy.jupyter.jupyter_log.write_line", logged.append)
    parts, before = Parts(), time.monotonic()
    parts.lifecycle.request()
    start_up = StartUpWait(parts.loop, parts.lifecycle, lasts=True)
    assert before <= parts.loop.timers[TIMER][0] - TELL_AFTER <= time.monotonic()
    parts.loop.fire(TIMER)
    assert logged == ["bitfusion_kernel: the kernel is ready when it has 1 GPU"]
    assert before + TELL_EVERY <= parts.loop.timers[TIMER][0]
    parts.loop.fire(TIMER)
    assert len(logged) == 2
    start_up.end()
    assert TIMER not in parts.loop.timers


def test_a_start_that_is_over_soon_is_not_told() -> None:
    parts = Parts()
    StartUpWait(parts.loop, parts.lifecycle, lasts=True).end()
    assert TIMER not in parts.loop.timers
