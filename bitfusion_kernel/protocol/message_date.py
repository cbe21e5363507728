"""When a message was sent, by its sender's clock, and whether that was before this kernel began. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECONNECTION = 5.0
"""Seconds after its start in which a kernel may get something older than itself. Later an old date only says
that two machines' clocks differ."""


def sent_at(header: Mapping[str, Any]) -> float | None:
    """Seconds since the epoch; None where the header has no usable date.

    Args:
        header: Of a request; its `date` is text in ISO 8601.
    """
    date = header.get("date")
    if not isinstance(date, str):
        return None
    from datetime import datetime

    try:
        # Python 3.10 knows no "Z"
        sent = datetime.fromisoformat(date.replace("Z", "+00:00"))
        return None if sent.tzinfo is None else sent.timestamp()
    except (ValueError, OverflowError):
        return None


def meant_for_predecessor(header: Mapping[str, Any], *, started_at: float, now: float) -> bool:
    """Whether a request was sent before this kernel started. False where the header has no usable date.

    Jupyter interrupts a kernel before each restart, also one that is dead. Nobody takes that interrupt; it
    stays in Jupyter's socket and reaches the next kernel, which has the same ports, when the socket finds the
    port open again, perhaps after the first cell.

    Args:
        header: Of the request.
        started_at: When this kernel's proxy started, in seconds of `time.time()`.
        now: The same clock, now.
    """
    if now - started_at > RECONNECTION:
        return False
    sent = sent_at(header)
    return sent is not None and sent < started_at
