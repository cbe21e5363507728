"""Ends leases whose clients are gone, as soon as no process holds their lock any more."""

from __future__ import annotations

import asyncio
import logging
import time

from bitfusion_client.errors import BitfusionError
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.timed_event import wait_at_most

_log = logging.getLogger(__name__)
LOOK_S = 0.05  # at leases without a connection
LOOK_AROUND_S = 1.0  # at everything: reservations run out, an administrator changes the ledger
_SLICE = 50  # leases looked at before others get their turn


class LeaseWatch:
    """The leases without a connection. `run` must be running."""

    def __init__(self, operations: PoolOperations) -> None:
        self._operations = operations
        self._leases: dict[str, None] = {}  # a set that keeps its order
        self._told: set[str] = set()  # those of which the log says that they cannot be ended
        self._added = asyncio.Event()

    def add(self, entry_id: str) -> None:
        """The client of this lease is gone, or has released it while others use it."""
        if self._end(entry_id):
            return
        self._leases[entry_id] = None
        self._added.set()

    async def run(self) -> None:
        """Look at them, again and again."""
        look_around_at = 0.0
        while True:
            now = time.monotonic()
            if now >= look_around_at:
                look_around_at = now + LOOK_AROUND_S
                self._look_around()
            for index, entry_id in enumerate(list(self._leases)):
                if self._end(entry_id):
                    self._leases.pop(entry_id, None)
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
            pause = LOOK_S if self._leases else look_around_at - time.monotonic()
            await wait_at_most(self._added, pause)

    def _end(self, entry_id: str) -> bool:
        try:
            ended = self._operations.end_if_unused(entry_id)
        except BitfusionError as error:
            # once: a full disk stays full for longer than the pause between two looks
            if entry_id not in self._told:
                self._told.add(entry_id)
                _log.error("lease cannot be ended", extra={"lease": entry_id, "reason": str(error)})
            return False
        if ended:
            self._told.discard(entry_id)
        return ended

    def _look_around(self) -> None:
        try:
            self._operations.look_around()
        except BitfusionError as error:
            _log.error("ledger cannot be used", extra={"reason": str(error)})
