"""Who holds what over time, in a bounded number of series: GPUs, waiting requests, GPU-seconds, waits. Pure.

A series is a holder (the name of a token, which nobody chooses for themselves), its namespace and the
notebook that its client says it is. The last is anybody's choice, so each holder has a bounded number of them
and all holders together another; what is beyond is counted under `OTHERS`.

Counters are cumulative as long as their series lives: it is dropped `KEPT_S` after its holder was last seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bitfusion_pool.ledger.entries import HELD, Holder
from bitfusion_pool.ledger.holder_place import holder_place

MOST_SERIES = 2000
MOST_NOTEBOOKS = 100  # of one holder
KEPT_S = 24 * 3600.0
LONGEST_LABEL = 130  # characters: an issuer's name, a slash and a namespace have 127

# Which holders have series of their own
NOBODY, TOKENS, EVERYBODY = "none", "tokens", "all"

# In round brackets, which no token's name, namespace or notebook has
USERS = "(users)"
OTHERS = "(others)"


class SeriesKey(NamedTuple):
    """The labels of a series."""

    holder: str
    namespace: str = ""
    notebook: str = ""


class Seen(NamedTuple):
    """An entry of the ledger as it is now; `asked`, `granted` and `idle_since` in seconds since the epoch.

    `user`, `host` and `uid` are its holder's: with a thousand that wait, making holders of them would take
    most of the time.
    """

    entry_id: str
    state: str
    user: str
    host: str
    uid: int
    gpus: float
    asked: float
    granted: float | None
    idle_since: float | None = None


@dataclass(slots=True)
class _Lease:
    """What is known of a lease between two changes of the ledger."""

    key: SeriesKey
    gpus: float
    granted: float | None
    idle_since: float | None


@dataclass(slots=True)
class Row:
    """One series: what it has now, and what it has had since it began.

    The timestamps are of its leases, in seconds since the epoch: when the oldest was granted, and since when
    the kernel is idle that is so the longest; None: there is none.
    """

    key: SeriesKey
    gpus: float = 0.0
    waiting: int = 0
    gpu_seconds: float = 0.0
    grants: int = 0
    wait_seconds: float = 0.0
    idle_gpus: float = 0.0
    idle_gpu_seconds: float = 0.0
    since_timestamp_seconds: float | None = field(default=None, compare=False)
    idle_since_timestamp_seconds: float | None = field(default=None, compare=False)
    seen_at: float = field(default=0.0, compare=False)


class HolderUsage:
    """Counts what it is shown at each change of the ledger; between two changes nothing changes but time.

    Args:
        which: `TOKENS`: users of the machine are counted together as `USERS`; `EVERYBODY`: each by name.
        now: The time by a clock that never goes back, in seconds, as in all calls.
        most_series: The bound of all series.
        most_notebooks: The bound of one holder's.
    """

    def __init__(
        self,
        which: str,
        now: float,
        most_series: int = MOST_SERIES,
        most_notebooks: int = MOST_NOTEBOOKS,
    ) -> None:
        self._which = which
        self._most_series = most_series
        self._most_notebooks = most_notebooks
        self._now = now
        self._series: dict[SeriesKey, Row] = {}
        self._keys: dict[str, SeriesKey] = {}  # of entries
        self._leases: dict[str, _Lease] = {}  # by the ids of entries
        self._granted: set[str] | None = None  # entries whose grant was counted; None: nothing was seen yet
        self._of_holder: dict[str, int] = {}
        self._all_gpu_seconds = 0.0

    def update(self, entries: Iterable[Seen], now: float) -> None:
        """The ledger has these entries from now on."""
        self._pass(now)
        for series in self._series.values():
            series.gpus, series.waiting, series.idle_gpus = 0.0, 0, 0.0
        before, granted = self._keys, set()
        self._keys, self._leases = {}, {}
        for seen in entries:
            key = before.get(seen.entry_id) or self._key(Holder("", seen.user, 0, seen.host, seen.uid))
            self._keys[seen.entry_id] = key
            series = self._series_of(key)
            series.seen_at = now
            if seen.state != HELD:
                series.waiting += 1
                continue
            series.gpus += seen.gpus
            if seen.idle_since is not None:
                series.idle_gpus += seen.gpus
            self._leases[seen.entry_id] = _Lease(key, seen.gpus, seen.granted, seen.idle_since)
            granted.add(seen.entry_id)
            if self._granted is not None and seen.entry_id not in self._granted:
                series.grants += 1
                series.wait_seconds += max(0.0, (seen.granted or seen.asked) - seen.asked)
        self._granted = granted
        self._forget(now)

    def activity(self, entry_id: str, idle_since: float | None, now: float) -> None:
        """The kernel under an entry is idle since then, in seconds since the epoch; None: it is not."""
        lease = self._leases.get(entry_id)
        if lease is None:
            return
        begins_or_ends = (lease.idle_since is None) != (idle_since is None)
        if begins_or_ends:
            self._pass(now)
        lease.idle_since = idle_since
        if begins_or_ends:
            leases = (one for one in self._leases.values() if one.key == lease.key)
            idle = sum(one.gpus for one in leases if one.idle_since is not None)
            self._series_of(lease.key).idle_gpus = idle

    def rows(self, now: float) -> list[Row]:
        """Copies of all series as they are now, those that are used up to this moment."""
        self._pass(now)
        self._forget(now)
        found = {row.key: replace(row) for row in self._series.values()}
        for lease in self._leases.values():
            row = found[lease.key]
            row.since_timestamp_seconds = _earlier(row.since_timestamp_seconds, lease.granted)
            row.idle_since_timestamp_seconds = _earlier(row.idle_since_timestamp_seconds, lease.idle_since)
        return list(found.values())

    def all_gpu_seconds(self, now: float) -> float:
        """Of everybody together, those whose series was dropped among them."""
        self._pass(now)
        return self._all_gpu_seconds

    def _pass(self, now: float) -> None:
        passed, self._now = max(0.0, now - self._now), now
        for series in self._series.values():
            if series.gpus or series.waiting:
                series.gpu_seconds += series.gpus * passed
                series.idle_gpu_seconds += series.idle_gpus * passed
                self._all_gpu_seconds += series.gpus * passed
                series.seen_at = now

    def _key(self, holder: Holder) -> SeriesKey:
        """The series of a new entry."""
        if not holder.is_remote:
            name = holder.user[:LONGEST_LABEL] if self._which == EVERYBODY else USERS
            return self._bounded(SeriesKey(name))
        place = holder_place(holder)
        key = SeriesKey(holder.user[:LONGEST_LABEL], place.namespace, place.notebook[:LONGEST_LABEL])
        if key not in self._series and self._of_holder.get(key.holder, 0) >= self._most_notebooks:
            key = key._replace(notebook=OTHERS)
        return self._bounded(key)

    def _bounded(self, key: SeriesKey) -> SeriesKey:
        if key in self._series or len(self._series) < self._most_series:
            return key
        return SeriesKey(OTHERS)

    def _series_of(self, key: SeriesKey) -> Row:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Row(key)
            self._of_holder[key.holder] = self._of_holder.get(key.holder, 0) + 1
        return series

    def _forget(self, now: float) -> None:
        gone = [key for key, series in self._series.items() if now - series.seen_at > KEPT_S]
        for key in gone:
            del self._series[key]
            self._of_holder[key.holder] -= 1
            if not self._of_holder[key.holder]:
                del self._of_holder[key.holder]


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((time for time in (one, other) if time is not None), default=None)
