"""Clock times for people: in texts that stay where they were shown, a duration would soon be untrue."""

from __future__ import annotations

import time


def clock_time(at: float, now: float, *, seconds: bool = False) -> str:
    """``14:03`` (with `seconds` ``14:03:07``), on another day than `now` ``2026-11-21 14:03``.

    Both in seconds since the epoch. In local time. Where that is UTC it says so: many containers have UTC,
    and few users live there.
    """
    then, today = time.localtime(at), time.localtime(now)
    form = ("" if then[:3] == today[:3] else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M")
    return time.strftime(form, then) + (" UTC" if then.tm_zone == "UTC" else "")
