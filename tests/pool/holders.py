"""Holders and waiters of a pool that live in the test's own process."""

from __future__ import annotations

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import PROCESS, Entry, Holder
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.ledger import Ledger


def somebody(label: str = "somebody") -> Holder:
    return Holder(label, "tester")


class Holders:
    """The entries of a test and their locks."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._locks: dict[str, LeaseLock] = {}

    def submit(self, request: GpuRequest, label: str = "x", kind: str = PROCESS) -> Entry:
        entry, lock = self.ledger.submit(request, somebody(label), kind=kind)
        self._locks[entry.entry_id] = lock
        return entry

    def release(self, entry: Entry) -> None:
        """End as an orderly holder does."""
        self.ledger.release(entry.entry_id)
        self._locks.pop(entry.entry_id).close()

    def die(self, entry: Entry) -> None:
        """End without telling the ledger, as a killed process does."""
        self._locks.pop(entry.entry_id).close()

    def pass_on(self, entry: Entry) -> None:
        """As a service does that passes the lock to a client."""
        self._locks[entry.entry_id].mark_passed()

    def state(self, entry: Entry) -> str | None:
        found = self.ledger.entry(entry.entry_id)
        return found.state if found else None

    def end(self) -> None:
        for entry in self.ledger.entries():
            self.ledger.release(entry.entry_id)
        for lock in self._locks.values():
            lock.close()
