"""Times for people: clock times, as in texts that stay where they were shown, and durations elsewhere."""

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


def elapsed_text(seconds: float) -> str:
    """`7 s`, `2 min 05 s`, `1 h 02 min`; less than none is none."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
