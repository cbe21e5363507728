"""When an Event was seen last, whoever wrote it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_client.kubernetes.raw_objects import mapping, text


def event_time(event: Mapping[str, Any]) -> str:
    """In RFC 3339 and UTC, so that texts compare as times do; empty if unknown. Of any shape."""
    # which of the fields is set depends on who wrote it
    last = text(mapping(event.get("series")).get("lastObservedTime")) or text(event.get("lastTimestamp"))
    return last or text(event.get("eventTime"))
