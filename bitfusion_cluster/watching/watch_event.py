"""Parses one line of a watch's stream: added, modified, deleted, bookmark, or an error such as 410. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.raw_objects import metadata_of, text, whole_number
from bitfusion_cluster.api.errors import ApiError, Gone, error_of_status

DELETED, BOOKMARK, ERROR = "DELETED", "BOOKMARK", "ERROR"
KINDS = ("ADDED", "MODIFIED", DELETED, BOOKMARK, ERROR)


class GarbledEvent(ValueError):
    """A line that is no event: not JSON, or without a type or an object."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; `data` is the object it is about, or the Status object of an error."""

    kind: str
    data: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The kind as a label of a metric: what else a server might send there is ``other``."""
        return self.kind if self.kind in KINDS else "other"

    @property
    def version(self) -> str:
        """The resourceVersion, from which a later watch goes on; empty if there is none."""
        return text(metadata_of(self.data).get("resourceVersion"))

    def error(self) -> ApiError:
        """What an event of the kind ERROR says; Gone when the place in the stream is lost."""
        error = error_of_status(whole_number(self.data.get("code"), 500), self.data)
        if error.reason == "Expired" and not isinstance(error, Gone):
            return Gone(410, error.reason, error.message)
        return error


def parse_event(line: bytes) -> WatchEvent:
    """The event in one line of the stream. Raises GarbledEvent."""
    try:
        event = json.loads(line)
        kind, data = event["type"], event["object"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise GarbledEvent(f"{type(error).__name__}: {error}") from error
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise GarbledEvent("an event has a type and an object")
    return WatchEvent(kind, data)
