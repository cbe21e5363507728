"""Waiting in tests: until a condition holds, until a value settles, and deadlines for sockets.

Every limit is scaled with the machine (`tests.support.machine`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from tests.support.machine import scaled

T = TypeVar("T")

_SHORTEST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


def wait_until(
    condition: Callable[[], T | Literal[False] | None],
    what: str | Callable[[], object] = "",
    limit_s: float | Deadline = 10.0,
    *,
    errors: tuple[type[BaseException], ...] = (),
) -> T:
    """Return what `condition` returns as soon as that is true.

    Args:
        condition: Called again and again, with growing pauses of up to 0.1 s.
        what: What is waited for, as text for the failure; a function is called when the wait has failed.
        limit_s: Seconds on a calm machine, or a deadline that other waits share.
        errors: Exceptions of `condition` that count as "not yet".

    Raises:
        AssertionError: It did not become true in time.
    """
    deadline = limit_s if isinstance(limit_s, Deadline) else Deadline(limit_s)
    pause = _SHORTEST_PAUSE_S
    while True:
        last_chance = deadline.passed
        last: object
        try:
            last = result = condition()
            if result:
                return result
        except errors as error:
            last = error
        if last_chance:
            text = what() if callable(what) else what or condition
            raise AssertionError(f"not within {deadline.limit_s:.3g} s: {text}; last seen: {last!r}")
        time.sleep(min(pause, deadline.left))
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def wait_until_settled(look: Callable[[], T], quiet_s: float = 1.0, limit_s: float = 20.0) -> T:
    """Return what `look` returns once it has been the same for `quiet_s` (which is scaled, too).

    Raises:
        AssertionError: It was still changing at the end of `limit_s`.
    """
    deadline = Deadline(limit_s)
    last, quiet = look(), Deadline(quiet_s)
    while not quiet.passed:
        assert not deadline.passed, f"not settled within {deadline.limit_s:.3g} s; last seen: {last!r}"
        time.sleep(_LONGEST_PAUSE_S)
        now = look()
        if now != last:
            last, quiet = now, Deadline(quiet_s)
    return last


class Deadline:
    """A moment so many seconds from now: for several waits together, and for pollers of sockets."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = scaled(limit_s)
        self._end = time.monotonic() + self.limit_s

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it is past."""
        return max(0.0, self._end - time.monotonic())

    @property
    def left_ms(self) -> int:
        """The same in whole milliseconds, as zmq's pollers want it."""
        return int(self.left * 1000)

    @property
    def passed(self) -> bool:
        return self.left == 0.0
