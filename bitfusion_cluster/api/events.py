"""Events (core/v1) as our controllers create them, one for each thing said; and when one was seen last."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from bitfusion_client.kubernetes.raw_objects import mapping, text

NORMAL, WARNING = "Normal", "Warning"
LONGEST_MESSAGE = 1024  # more is refused by the API server
_LONGEST_REPORTER = 128
_LONGEST_PREFIX = 200  # of the object's name in the Event's, which may have 253 characters


def about(api_version: str, kind: str, namespace: str, name: str, uid: str) -> dict[str, str]:
    """What an Event is about, as `event_object` takes it."""
    return {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid}


@dataclass(frozen=True, slots=True)
class Said:
    """What one Event says; `type` is `NORMAL` or `WARNING`, `reason` one word for programs.

    What is told again in the same words is no second Event, unless `occasion` is another one: for what must
    be the newest Event again, because it is that which a form shows.
    """

    type: str
    reason: str
    message: str
    occasion: str = ""


def event_object(
    about: Mapping[str, str], said: Said, component: str, replica: str = "", one_for_its_reason: bool = False
) -> dict[str, Any]:
    """The Event to be created, in the namespace of what it is about.

    Its name follows from the object's uid and from reason and message: sent again, it exists already (409),
    so a repeat is never a second Event. The API server forgets Events after an hour or so.

    Args:
        about: See there.
        said: Its message is shortened where it is too long.
        component: Which of our programs says it.
        replica: Which of its replicas.
        one_for_its_reason: The name does not follow from the message, for one whose numbers change.
    """
    message = said.message
    parts = (about["uid"], said.reason, "" if one_for_its_reason else message, said.occasion)
    content = "\0".join(filter(None, parts))
    name = f"{about['name'][:_LONGEST_PREFIX]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": about["namespace"], "name": name},
        "involvedObject": dict(about),
        "type": said.type,
        "reason": said.reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": replica[:_LONGEST_REPORTER],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def event_renewal(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is merged into the Event that is there already under the name of this one."""
    return {name: body[name] for name in ("message", "lastTimestamp", "reportingInstance")}


def event_count(renewed: Mapping[str, Any]) -> dict[str, int]:
    """What is merged next, by the API server's answer to `event_renewal`: no right to read Events is needed.

    kubectl shows the age of an Event that is counted once by its first time, of others by their last.
    """
    count = renewed.get("count")
    return {"count": count + 1 if isinstance(count, int) and count > 0 else 2}


def event_time(event: Mapping[str, Any]) -> str:
    """In RFC 3339 and UTC, so that texts compare as times do; empty if unknown. Of any shape."""
    # which of the fields is set depends on who wrote it
    last = text(mapping(event.get("series")).get("lastObservedTime")) or text(event.get("lastTimestamp"))
    return last or text(event.get("eventTime"))
