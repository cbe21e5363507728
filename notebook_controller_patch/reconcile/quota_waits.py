"""Quotas of units, and notebooks whose pods one has refused: tried again as soon as the quota has room.

A StatefulSet whose pod was refused tries again by itself, but after some time only every quarter of an hour.
A touch of one of its annotations makes it try at once.

Called by the reconciler's workers and by the watch of quotas, which share one object; it locks for itself and
makes no request.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.quota_keys import wrong_quota_keys
from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text
from bitfusion_cluster.watching.backoff import doubled_delay
from bitfusion_cluster.watching.cache import Cache, Key
from notebook_controller_patch.reconcile.quota_refusals import QuotaRefusal


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """A ResourceQuota that counts units, or seems to limit GPUs.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        hard: Units, as its status has them: by this the API server admits pods. None: it counts none.
        used: Of these.
        wrong_keys: By which it limits nothing; see `quota_record`.
        uid: The quota's.
    """

    namespace: str
    name: str
    hard: int | None
    used: int
    wrong_keys: tuple[str, ...] = ()
    uid: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def free(self) -> int:
        """Below 0 where the quota has become smaller than what is used."""
        return sys.maxsize if self.hard is None else self.hard - self.used


def quota_record(data: Mapping[str, Any], gpu_keys: Sequence[str] = ()) -> QuotaRecord | None:
    """The record of a raw ResourceQuota; None for one that says nothing of GPUs. Never raises.

    `gpu_keys` are those that count GPU pods' GPUs: only with some are keys wrong. There what was written
    counts, not the status, which follows it.
    """
    metadata, status = metadata_of(data), mapping(data.get("status"))
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    hard = mapping(status.get("hard"))
    units = unit_count(hard[QUOTA_UNITS]) if QUOTA_UNITS in hard else None
    written = mapping(mapping(data.get("spec")).get("hard"))
    wrong = wrong_quota_keys(written, gpu_keys) if gpu_keys else ()
    if not namespace or not name or (units is None and not wrong):
        return None
    used = unit_count(mapping(status.get("used")).get(QUOTA_UNITS))
    return QuotaRecord(sys.intern(namespace), name, units, used, wrong, text(metadata.get("uid")))


FIRST_TRY_S = 2.0  # until the next try, where a quota seems to have room and the pod is refused all the same
LONGEST_TRY_S = 60.0


@dataclass(slots=True)
class _Wait:
    tries: int = 0
    next_try: float = 0.0
    told: str = ""


class QuotaWaits:
    """Which notebooks wait for a quota.

    Args:
        quotas: Those of all namespaces; until it is filled nothing is tried.
        look_later: Queues a notebook, so many seconds from now.
        clock: Seconds, monotonic; tests pass their own.
    """

    def __init__(
        self,
        quotas: Cache[QuotaRecord],
        look_later: Callable[[Key, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quotas = quotas
        self._look_later = look_later
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[Key, _Wait] = {}

    def refused(self, key: Key, refusal: QuotaRefusal) -> bool:
        """It was refused: whether to try it now, because the quota has room again or is gone."""
        with self._lock:
            wait = self._waiting.setdefault(key, _Wait())
            if not self._has_room(key[0], refusal):
                wait.tries, wait.next_try = 0, 0.0
                return False
            now = self._clock()
            if now < wait.next_try:
                self._look_later(key, wait.next_try - now)
                return False
            pause = doubled_delay(wait.tries, FIRST_TRY_S, LONGEST_TRY_S)
            wait.tries = min(wait.tries + 1, 10)
            wait.next_try = now + pause
            self._look_later(key, pause)
            return True

    def to_be_told(self, key: Key, refusal: QuotaRefusal) -> bool:
        """Whether this refusal is another one than was told last."""
        with self._lock:
            return self._waiting.setdefault(key, _Wait()).told != refusal.when

    def was_told(self, key: Key, refusal: QuotaRefusal) -> None:
        """The notebook's user has been told of it."""
        with self._lock:
            self._waiting.setdefault(key, _Wait()).told = refusal.when

    def changed(self, old: QuotaRecord | None, new: QuotaRecord | None) -> None:
        """A quota allows more, or less, than before: those of its namespace that wait are looked at."""
        record = new or old
        if record is None:
            return
        with self._lock:
            waiting = [key for key in self._waiting if key[0] == record.namespace]
        for key in waiting:
            self._look_later(key, 0.0)

    def forget(self, key: Key) -> None:
        """It has its pod, needs none, or is not refused for a quota any more."""
        with self._lock:
            self._waiting.pop(key, None)

    def _has_room(self, namespace: str, refusal: QuotaRefusal) -> bool:
        if not self._quotas.synced():
            return False
        record = self._quotas.get(namespace, refusal.quota)
        return record is None or record.free >= refusal.requested
