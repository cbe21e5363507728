"""The throttler of repeated writes to one notebook, by a clock that the test moves."""

from __future__ import annotations

from notebook_controller_patch.reconcile.write_throttler import WriteThrottler
from tests.bitfusion_cluster.watching.clock import Clock

A, B = ("ann", "a"), ("ann", "b")


def test_repeated_writes_to_one_key_are_slowed_down(clock: Clock) -> None:
    throttler = WriteThrottler(free=3, first=1, longest=4, calm=100, clock=clock)
    waits = []
    for _ in range(7):
        waits.append(throttler.delay(A))
        clock.now += waits[-1]
        throttler.note(A)
    assert waits == [0, 0, 0, 1, 2, 4, 4]
    assert throttler.delay(B) == 0, "of this key only"
    clock.now += 100
    assert throttler.delay(A) == 0, "forgotten after a calm time"


def test_a_key_that_is_gone_is_forgotten(clock: Clock) -> None:
    throttler = WriteThrottler(free=0, clock=clock)
    throttler.note(A)
    assert throttler.delay(A) > 0
    throttler.forget(A)
    assert throttler.delay(A) == 0
