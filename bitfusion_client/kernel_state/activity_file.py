"""When to look at the file in which a kernel says what it does, and when to pass that on.

For each `bitfusion run` that passes it on. It looks once a second at most and passes on what is new, at its
own pace: however often the file changes, nobody further away notices.
"""

from __future__ import annotations

import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state import states
from bitfusion_client.kernel_state.activity import UNKNOWN, KernelActivity, activity_from_json

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.9
"""A little less than the beat in which it is looked at, which is never exact."""


class ActivityFile:
    """A file, and what was passed on of it last.

    Args:
        path: Where it is.
        read: Reads it; never raises.
        tell_s: Seconds from one passing on to the next.

    Attributes:
        next_look: When the next look is due, by the clock of the `now` that the methods are given.
    """

    def __init__(self, path: str, read: Callable[[str], KernelActivity], tell_s: float) -> None:
        self._path = path
        self._read = read
        self._tell_s = tell_s
        self._told: KernelActivity | None = UNKNOWN
        self.next_look = 0.0

    def look(self, now: float) -> KernelActivity | None:
        """What is to be passed on now; None: nothing, or it is too early to look again."""
        if now < self.next_look:
            return None
        self.next_look = now + LOOK_S
        activity = self._read(self._path)
        return None if activity == self._told else activity

    def told(self, activity: KernelActivity, now: float) -> None:
        """It was passed on."""
        self._told = activity
        self.next_look = now + self._tell_s

    def failed(self, now: float) -> None:
        """It could not be passed on: it is tried again no sooner than something new would be."""
        self.next_look = now + self._tell_s

    def forget(self) -> None:
        """What was passed on may not have arrived."""
        self._told = None


def read_activity(path: str) -> KernelActivity:
    """What the file says; UNKNOWN where it says nothing. Never raises, never waits."""
    try:
        return activity_from_json(states.read(path), time.time()) if path.startswith("/") else UNKNOWN
    except ValueError:  # of the path: it may have a NUL
        return UNKNOWN
