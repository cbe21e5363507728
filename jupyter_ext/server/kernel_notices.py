"""What of a change of a kernel's state is worth telling whoever looks elsewhere. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from bitfusion_client.kernel_state import states
from bitfusion_client.one_line import one_line

Json = dict[str, Any]

SOON = 120.0
"""Seconds before a release by idleness at which it is told."""

LEAST_WAIT = 2.0
"""Seconds; nobody looks elsewhere because of a shorter wait."""

_HOLDS = (states.STARTING, states.RUNNING, states.IDLE, states.PARKED)
_MOST_NAMED = 3


class Notice(NamedTuple):
    """A sentence for a person; `kind` is one of those in the event's schema."""

    kind: str
    message: str


def notices(before: Json | None, after: Json | None, title: str, now: float) -> list[Notice]:
    """What is to be told of a change from one published state to the next, of the kernel called `title`.

    Args:
        before: None: nothing was known of it.
        after: None: the kernel is gone, which Jupyter itself shows.
        title: Of the notebook.
        now: Seconds since the epoch.
    """
    if after is None:
        return []
    size = _size(after if after.get("state") != states.NONE or before is None else before)
    found = []
    if before is not None and _has_waited(before, after):
        found.append(Notice("granted", f"{title} now has {size}."))
    if before is not None and before.get("state") in (*_HOLDS, states.RELEASING) and _held(before, after):
        found.append(Notice("lease_ended", f"{title} no longer holds a GPU; the next cell takes one."))
    if _blocks(after) and not (before is not None and _blocks(before)):
        found.append(Notice("someone_waits", _someone_waits(after, title, size)))
    if is_released_soon(after, now) and not (before is not None and is_released_soon(before, now)):
        found.append(idle_release_notice(after, title, now))
    return found


def is_waited_for(state: Json) -> bool:
    """Whether somebody waits for what it holds, as far as that is known."""
    return bool(_waiters(state))


def is_released_soon(state: Json, now: float) -> bool:
    """Whether what an idle kernel holds will be given back within `SOON`."""
    at = idle_release_at(state)
    return at is not None and at - now <= SOON


def idle_release_at(state: Json) -> float | None:
    """When an idle kernel gives back what it holds, if nobody computes; None: never, or not known."""
    at = state.get("idle_release_at")
    if isinstance(at, bool) or not isinstance(at, (int, float)) or state.get("state") != states.IDLE:
        return None
    return float(at)


def idle_release_notice(state: Json, title: str, now: float) -> Notice:
    """It is told `SOON` before, or as soon as it is known."""
    left = max(0.0, (idle_release_at(state) or now) - now)
    when = f"{max(1, round(left))} s" if left < 90 else f"{round(left / 60)} min"
    return Notice(
        "idle_release_soon",
        f"{title} releases {_size(state)} in {when} because no cell is running; keep it if you want to "
        "continue.",
    )


def _has_waited(before: Json, after: Json) -> bool:
    waited_s = after.get("waited_s")
    long_enough = isinstance(waited_s, (int, float)) and waited_s >= LEAST_WAIT
    # a kernel that starts may tell a moment later since when it holds its GPUs
    waited = before.get("state") in (states.WAITING, states.STARTING) and before.get("granted_at") is None
    return waited and after.get("state") in _HOLDS[:3] and long_enough


def _held(before: Json, after: Json) -> bool:
    """Whether it had a lease and has none now."""
    had = before.get("granted_at") is not None or before.get("lease") is not None
    return had and after.get("state") == states.NONE


def _blocks(state: Json) -> bool:
    return state.get("state") == states.IDLE and is_waited_for(state)


def _waiters(state: Json) -> list[str]:
    told = state.get("waited_for_by")
    return [one_line(name, 100) for name in told] if isinstance(told, list) else []


def _someone_waits(state: Json, title: str, size: str) -> str:
    names = _waiters(state)
    more = len(names) - _MOST_NAMED
    who = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{title} is idle and holds {size}, for which others are waiting: {who}."


def _size(state: Json) -> str:
    request = state.get("request")
    text = request.get("text") if isinstance(request, dict) else None
    return one_line(text, 100) if isinstance(text, str) and text else "its GPU"
