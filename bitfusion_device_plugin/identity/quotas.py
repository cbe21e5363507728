"""What ResourceQuotas allow each namespace in units of the pool: a cache of those that say something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text
from bitfusion_client.request.quantities import parse_quantity
from bitfusion_cluster.watching.cache import Cache
from bitfusion_device_plugin.identity.limits import LARGEST_UNITS


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """A quota of a namespace that counts all of its pods; `units` are at most `LARGEST_UNITS`."""

    namespace: str
    name: str
    units: int

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


def quota_record(data: Mapping[str, Any]) -> QuotaRecord | None:
    """The record of a raw ResourceQuota; None for one that says nothing of all pods' units. Never raises.

    One with scopes counts some pods only, such as those of a priority class: it is no limit of the namespace.
    What the administrator wrote counts, not the status, which follows it.
    """
    metadata, spec = metadata_of(data), mapping(data.get("spec"))
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    if not namespace or not name or spec.get("scopes") or spec.get("scopeSelector"):
        return None
    try:
        numerator, denominator = parse_quantity(mapping(spec.get("hard")).get(QUOTA_UNITS))
    except ValueError:
        return None
    # pods ask for whole units: half a one more lets none of them in
    return QuotaRecord(namespace, name, min(max(numerator // denominator, 0), LARGEST_UNITS))


class NamespaceQuotas:
    """The quotas of all namespaces, filled by a watch.

    Args:
        changed: Called with a namespace whose quotas may allow something else now, in the watch's thread.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self.cache: Cache[QuotaRecord] = Cache(self._report)

    def units(self, namespace: str) -> int | None:
        """What all quotas of a namespace allow together: what the smallest does. None without one."""
        found = [self.cache.get(*key) for key in self.cache.known_keys() if key[0] == namespace]
        return min((record.units for record in found if record is not None), default=None)

    def _report(self, old: QuotaRecord | None, new: QuotaRecord | None) -> None:
        record = new or old
        if record is not None:
            self._changed(record.namespace)
