"""The trimmed copy of what the cluster holds, filled by one ListWatch and read by any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Record(Protocol):
    """What a cache holds: something with a namespace and a name."""

    @property
    def key(self) -> tuple[str, str]: ...


R = TypeVar("R", bound=Record)
Key = tuple[str, str]  # namespace, name
Changed = Callable[["R | None", "R | None"], None]


class Cache(Generic[R]):
    """Records by namespace and name.

    `changed(old, new)` is called after each change that matters (records that differ), from the thread that
    fills the cache; None stands for "is not there". A resourceVersion alone moves without a call.
    """

    def __init__(self, changed: Changed[R] | None = None) -> None:
        self._changed = changed
        self._records: dict[Key, R] = {}
        self._synced = threading.Event()

    def get(self, namespace: str, name: str) -> R | None:
        """The record, None if there is none or the cache isn't synced yet."""
        return self._records.get((namespace, name))

    def known(self) -> list[Key]:
        """The keys of all records, as of now."""
        return list(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def synced(self) -> bool:
        """Whether it has held everything at least once."""
        return self._synced.is_set()

    def wait_synced(self, seconds: float) -> bool:
        return self._synced.wait(seconds)

    def put(self, record: R) -> None:
        """An object was added or modified."""
        old = self._records.get(record.key)
        self._records[record.key] = record
        if old != record:
            self._tell(old, record)

    def remove(self, key: Key) -> None:
        """An object was deleted, or does not concern us any more."""
        old = self._records.pop(key, None)
        if old is not None:
            self._tell(old, None)

    def replace(self, records: dict[Key, R]) -> None:
        """Everything was listed anew. What is missing in the list was deleted meanwhile."""
        old = self._records
        self._records = records
        self._synced.set()
        for key, before in old.items():
            if key not in records:
                self._tell(before, None)
        for key, record in records.items():
            before_or_none = old.get(key)
            if before_or_none != record:
                self._tell(before_or_none, record)

    def _tell(self, old: R | None, new: R | None) -> None:
        if self._changed is not None:
            self._changed(old, new)
