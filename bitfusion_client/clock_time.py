"""Clock times for people: in texts that stay where they were shown, a duration would soon be untrue."""

from __future__ import annotations

import time


def clock_time(at: float, now: float) -> str:
    """``14:03``, on another day than `now` ``2026-11-21 14:03``; seconds since the epoch.

    In local time. Where that is UTC it says so: many containers have UTC, and few users live there.
    """
    then, today = time.localtime(at), time.localtime(now)
    form = "%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M"
    return time.strftime(form, then) + (" UTC" if then.tm_zone == "UTC" else "")
