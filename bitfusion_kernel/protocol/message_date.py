"""When a message was sent, by its sender's clock. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
