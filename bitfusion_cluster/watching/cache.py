"""The cache of watched objects, filled by one watch, read by any thread; and how old what it holds may be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

Key = tuple[str, str]  # namespace, name


class Record(Protocol):
    """What a cache holds: something with a namespace and a name."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        ...


R = TypeVar("R", bound=Record)
Changed = Callable[["R | None", "R | None"], None]


class Cache(Generic[R]):
    """Records by namespace and name, as the API server last reported them.

    Args:
        changed: Called as ``changed(old, new)`` after each change that matters (the records differ), in the
            thread that fills the cache; None stands for "is not there". A new resourceVersion alone is no
            change.
    """

    def __init__(self, changed: Changed[R] | None = None) -> None:
        self._changed = changed
        self._records: dict[Key, R] = {}
        self._synced = threading.Event()

    def get(self, namespace: str, name: str) -> R | None:
        """The record; None if there is none, or if the first list has not been read yet."""
        return self._records.get((namespace, name))

    def known_keys(self) -> list[Key]:
        """The keys of all records, as of now."""
        return list(self._records)

    def records(self) -> list[R]:
        """All records, as of now."""
        return list(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def synced(self) -> bool:
        """Whether everything has been listed at least once."""
        return self._synced.is_set()

    def wait_synced(self, seconds: float) -> bool:
        """Wait up to `seconds` for the first list; whether it is there."""
        return self._synced.wait(seconds)

    def put(self, record: R) -> None:
        """An object was added or modified."""
        old = self._records.get(record.key)
        self._records[record.key] = record
        if old != record:
            self._report(old, record)

    def remove(self, key: Key) -> None:
        """An object was deleted, or does not concern the controller any more."""
        old = self._records.pop(key, None)
        if old is not None:
            self._report(old, None)

    def replace(self, records: dict[Key, R]) -> None:
        """Everything was listed anew. What is missing in the list was deleted meanwhile."""
        old = self._records
        self._records = records
        self._synced.set()
        for key, before in old.items():
            if key not in records:
                self._report(before, None)
        for key, record in records.items():
            before_or_none = old.get(key)
            if before_or_none != record:
                self._report(before_or_none, record)

    def _report(self, old: R | None, new: R | None) -> None:
        if self._changed is not None:
            self._changed(old, new)


class CacheAge:
    """The seconds since the API server last said something that holds for all that a cache holds.

    A quiet watch confirms its cache too: servers send bookmarks about once a minute, and end a watch in order
    after the time that was asked for. A connection that opens, an error in the stream, or a page of a list
    that is not complete confirm nothing: a server may say those for hours and refuse everything else.

    Made and confirmed by the loop that fills the cache; any thread may ask.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._confirmed = clock()

    def confirm(self) -> None:
        """What the cache holds is what there was a moment ago."""
        self._confirmed = self._clock()

    def seconds(self) -> float:
        """Since the last confirmation; before the first one, since this was made."""
        return self._clock() - self._confirmed
