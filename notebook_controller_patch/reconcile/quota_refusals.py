"""Pods that the API server refused because a quota of units is used up: its words, read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.raw_objects import text
from bitfusion_cluster.api.events import event_time

# As kube-apiserver has it (plugin/pkg/admission/resourcequota); seen on 1.34. With several resources each
# of the three lists has those that are exceeded, by commas without a blank.
_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[a-z0-9.-]{1,253}), requested: (?P<requested>[^ ]{1,2000}), "
    r"used: (?P<used>[^ ]{1,2000}), limited: (?P<limited>[^ ]{1,2000})"
)


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """What the API server said: numbers in units, and when it said so last, as the Event has it."""

    quota: str
    requested: int
    used: int
    limited: int
    when: str


def quota_refusal(events: Sequence[Mapping[str, Any]]) -> QuotaRefusal | None:
    """What the newest of a StatefulSet's Events about refused pods says of a quota of units; else None."""
    newest = max(events, key=event_time, default=None)
    if newest is None:
        return None
    found = _EXCEEDED.search(text(newest.get("message")))
    if found is None:
        return None
    amounts = [_amount(found[name]) for name in ("requested", "used", "limited")]
    requested, used, limited = amounts
    if requested is None or used is None or limited is None:
        return None
    return QuotaRefusal(found["quota"], requested, used, limited, event_time(newest))


def _amount(listed: str) -> int | None:
    for item in listed.split(","):
        name, equals, amount = item.partition("=")
        if name == QUOTA_UNITS and equals:
            return unit_count(amount)
    return None
