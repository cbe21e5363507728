"""What ResourceQuotas allow each namespace in units of the pool: a cache of those that say it, or try to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.quota_keys import wrong_quota_keys
from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text
from bitfusion_client.request.quantities import parse_quantity
from bitfusion_cluster.watching.cache import Cache, Changed
from bitfusion_device_plugin.identity.limits import LARGEST_UNITS


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """A quota that counts units, or seems to.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        units: That all pods of the namespace may ask for together, at most `LARGEST_UNITS`; None: it says
            nothing of that.
        wrong_keys: By which it limits nothing, although they name Bitfusion's resources; the first few.
        uid: The quota's.
    """

    namespace: str
    name: str
    units: int | None
    wrong_keys: tuple[str, ...] = ()
    uid: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


def quota_record(data: Mapping[str, Any]) -> QuotaRecord | None:
    """The record of a raw ResourceQuota; None for one that says nothing of Bitfusion. Never raises.

    One with scopes counts some pods only, such as those of a priority class: it is no limit of the namespace.
    What the administrator wrote counts, not the status, which follows it.
    """
    metadata, spec = metadata_of(data), mapping(data.get("spec"))
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    hard, scoped = mapping(spec.get("hard")), spec.get("scopes") or spec.get("scopeSelector")
    units, wrong = None if scoped else _units(hard), wrong_quota_keys(hard)
    if not namespace or not name or (units is None and not wrong):
        return None
    return QuotaRecord(namespace, name, units, wrong, text(metadata.get("uid")))


def _units(hard: Mapping[str, Any]) -> int | None:
    try:
        numerator, denominator = parse_quantity(hard.get(QUOTA_UNITS))
    except ValueError:
        return None
    # pods ask for whole units: half a one more lets none of them in
    return min(max(numerator // denominator, 0), LARGEST_UNITS)


class NamespaceQuotas:
    """The quotas of all namespaces, filled by a watch.

    Args:
        changed: Called with a namespace whose quotas may allow something else now, in the watch's thread.
        also: Called with a quota as it was and is, as a cache's `changed`.
    """

    def __init__(
        self,
        changed: Callable[[str], None],
        also: Changed[QuotaRecord] = lambda old, new: None,
    ) -> None:
        self._changed = changed
        self._also = also
        self.cache: Cache[QuotaRecord] = Cache(self._report)

    def units(self, namespace: str) -> int | None:
        """What all quotas of a namespace allow together: what the smallest does. None without one."""
        found = [self.cache.get(*key) for key in self.cache.known_keys() if key[0] == namespace]
        units = (None if record is None else record.units for record in found)
        return min((one for one in units if one is not None), default=None)

    def _report(self, old: QuotaRecord | None, new: QuotaRecord | None) -> None:
        record = new or old
        before, after = (None if one is None else one.units for one in (old, new))
        if record is not None and before != after:
            self._changed(record.namespace)
        self._also(old, new)
