"""Own writes that the cache does not show yet: what they reserve, when they are tried again, their end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitfusion_device_plugin.queue.pending_writes import CACHE_S, PASSED_OVER_S, PendingWrites
from tests.bitfusion_device_plugin.queue.pods import pod

SEEN = pod("p")
ANSWERED = replace(SEEN, resource_version="2")
LATER = replace(SEEN, resource_version="3")


def kept() -> PendingWrites:
    pending = PendingWrites()
    pending.begin(SEEN, reserves=True)
    return pending


@pytest.mark.parametrize("end", ["done", "lost", "conflicts"])
def test_units_are_reserved_until_the_cache_shows_another_version(end: str) -> None:
    pending = kept()
    getattr(pending, end)(SEEN, *(["no answer"] if end == "lost" else []), 0.0)
    pending.settle([SEEN])
    assert pending.reserved() == {"p"}
    pending.settle([LATER])
    assert pending.reserved() == set()


def test_a_refusal_ends_a_reservation_unless_the_units_are_known_to_be_kept() -> None:
    pending = kept()
    pending.lost(SEEN, "", 0.0)
    pending.refuse(SEEN, "no", 0.0)
    assert pending.reserved() == set()
    pending = kept()
    pending.landed(SEEN, ANSWERED)
    pending.refuse(SEEN, "no", 0.0)
    assert pending.reserved() == {"p"}


def test_the_version_that_was_answered_is_an_own_one_too() -> None:
    pending = kept()
    pending.landed(SEEN, ANSWERED)
    pending.done(SEEN, 0.0)
    pending.settle([ANSWERED])
    assert not pending.may_try(ANSWERED, CACHE_S - 1)
    pending.settle([LATER])
    assert pending.may_try(LATER, 0.0)


def test_a_pod_that_is_gone_is_forgotten() -> None:
    pending = kept()
    for _ in range(3):
        pending.refuse(SEEN, "no", 0.0)
    pending.settle([])
    assert not pending.waits(0.0)
    assert pending.refused(0.0) == {}


def test_what_fails_is_tried_again_later_and_later() -> None:
    pending = kept()
    waited = []
    now = 0.0
    for _ in range(8):
        pending.lost(SEEN, "", now)
        seconds = next(second for second in range(100) if pending.may_try(SEEN, now + second))
        waited.append(seconds)
        now += seconds
    assert waited == [1, 2, 4, 8, 16, 30, 30, 30]


def test_another_version_may_be_tried_at_once() -> None:
    pending = kept()
    pending.lost(SEEN, "", 0.0)
    assert not pending.may_try(SEEN, 0.5)
    assert pending.may_try(LATER, 0.5)


def test_three_refusals_pass_a_pod_over_for_a_minute_and_one_more_the_next_time() -> None:
    pending = kept()
    for _ in range(2):
        pending.refuse(SEEN, "no", 0.0)
    assert pending.refused(0.0) == {}
    pending.refuse(SEEN, "never", 0.0)
    assert pending.refused(PASSED_OVER_S - 1) == {"p": "never"}
    assert pending.refused(PASSED_OVER_S) == {}
    pending.refuse(SEEN, "never", PASSED_OVER_S)
    assert pending.refused(PASSED_OVER_S) == {"p": "never"}
    pending.done(SEEN, PASSED_OVER_S)
    assert pending.refused(PASSED_OVER_S) == {}
