"""Requests whose client is away for a moment: their places in the queue are kept until it comes back."""

from __future__ import annotations

import asyncio
import logging

from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.sessions.entry_watch import EntryWatch

_log = logging.getLogger(__name__)


class KeptRequests:
    """Holds their locks for so many `seconds`; `Watched` for them meanwhile.

    One that is granted waits here for its client, too.
    """

    def __init__(
        self,
        operations: PoolOperations,
        entry_watch: EntryWatch,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
    ) -> None:
        self._operations = operations
        self._entry_watch = entry_watch
        self._loop = loop
        self._seconds = seconds
        self._kept: dict[str, tuple[LeaseLock, asyncio.TimerHandle]] = {}

    def keep(self, entry_id: str, lock: LeaseLock) -> None:
        """From now on the client of this request may come back for it."""
        timer = self._loop.call_later(self._seconds, self._drop, entry_id)
        self._kept[entry_id] = lock, timer
        self._entry_watch.add(entry_id, self)

    def take(self, entry_id: str, secret: str, peer: Peer) -> tuple[Entry, LeaseLock] | None:
        """The request for a client that has come back and proves that it is its; None: it is not kept here.

        Raises:
            Refusal: It is not with this secret, or not this user's.
        """
        if entry_id not in self._kept:
            return None
        entry = self._operations.own_entry(entry_id, secret, peer)
        return entry, self._forget(entry_id)

    def entry_granted(self, entry_id: str) -> None:
        """See `Watched`: the client hears it when it is back."""

    def entry_gone(self, entry_id: str) -> None:
        """See `Watched`."""
        self._forget(entry_id).close()

    def show_position(self, entry_id: str, refresh: bool) -> None:
        """See `Watched`: there is nobody to tell."""

    def _forget(self, entry_id: str) -> LeaseLock:
        lock, timer = self._kept.pop(entry_id)
        timer.cancel()
        self._entry_watch.remove(entry_id)
        return lock

    def _drop(self, entry_id: str) -> None:
        _log.info("request ended: its client did not come back", extra={"lease": entry_id})
        self._operations.drop(entry_id, self._forget(entry_id))
