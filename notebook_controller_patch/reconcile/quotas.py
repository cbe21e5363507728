"""A namespace's quota of units, as far as a notebook waits for it: what it allows, and what is used of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """A ResourceQuota that counts units, as its status has it: by this the API server admits pods."""

    namespace: str
    name: str
    hard: int
    used: int

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def free(self) -> int:
        """Below 0 where the quota has become smaller than what is used."""
        return self.hard - self.used


def quota_record(data: Mapping[str, Any]) -> QuotaRecord | None:
    """The record of a raw ResourceQuota; None for one that does not count units. Never raises."""
    metadata, status = metadata_of(data), mapping(data.get("status"))
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    hard = mapping(status.get("hard"))
    if not namespace or not name or QUOTA_UNITS not in hard:
        return None
    used = mapping(status.get("used")).get(QUOTA_UNITS)
    return QuotaRecord(sys.intern(namespace), name, unit_count(hard[QUOTA_UNITS]), unit_count(used))
