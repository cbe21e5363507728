"""The life of leases and requests over the network: only words of their clients show that these live.

A connection that its client has ended ends them after `closed_s`, silence after `silent_s`; within these
times the client comes back. A client ends its program earlier than that, by what it has heard of the service.
It knows of no end but its own: so a connection that broke, that something in between has ended or that we
have ended, and a lease that somebody else has ended, count as silence until the client is seen to know. What
the service finds when it starts gets the whole of `silent_s`. All times are by `liveness.clock`, which counts
while the machine sleeps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from bitfusion_client.errors import BitfusionError
from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 1.0
CLOSED, SILENT, ENDED = "closed", "silent", "ended"


class QueuedRequest:
    """The request, its lock, and what its client was told last.

    Attributes:
        entry: As it was when it came.
        lock: Keeps it alive in the ledger.
        inside: The id of the lease under which the client itself runs.
        shown: The position that the client knows.
        since: By `time.monotonic`.
    """

    __slots__ = ("entry", "inside", "lock", "shown", "since")

    def __init__(self, entry: Entry, lock: LeaseLock, inside: str = "") -> None:
        self.entry = entry
        self.lock = lock
        self.inside = inside
        self.shown: object = None
        self.since = time.monotonic()


class LeaseOwner(Protocol):
    """The session of a client."""

    def hand_over(self, entry_id: str) -> QueuedRequest | None:
        """Serve this entry no more; returns its request if it waits."""

    def refuse(self, refusal: Refusal) -> None:
        """Tell the client."""


class RemoteHolder(Protocol):
    """What serves an entry: `LifeByWords`, which says what these are."""

    owner: LeaseOwner
    heard_at: float
    number: int


class _Life:
    """What is known of one entry's client."""

    __slots__ = ("closed_at", "ended_at", "heard_at", "holder", "is_stuck", "left_by", "newest", "request")

    def __init__(self, now: float, request: QueuedRequest | None = None) -> None:
        self.heard_at = now  # counts only without a holder
        self.holder: RemoteHolder | None = None
        self.newest = -1  # the number of the latest that served it
        self.left_by: RemoteHolder | None = None  # its connection has ended, and not by its client
        self.closed_at: float | None = None
        self.ended_at: float | None = None  # somebody else ended it, and its client was told
        self.is_stuck = False  # the ledger cannot be written, and the log says so
        self.request = request  # of an entry that waits without a connection

    def end(self, closed_s: float, silent_s: float) -> tuple[float, str]:
        """When it is over, and why, if nothing more happens."""
        heard_at = self.heard_at if self.holder is None else self.holder.heard_at
        ends = [(heard_at + silent_s, SILENT)]
        if self.closed_at is not None:
            ends.append((self.closed_at + closed_s, CLOSED))
        if self.ended_at is not None:
            ends.append((self.ended_at + silent_s, ENDED))
        return min(ends)


class RemoteLeases:
    """The leases and requests of clients on other machines. `run` must be running.

    Attributes:
        heard_s: Who has not been heard for so long is told nothing unasked. A client takes what it hears for
            a sign that it is heard, and trusts in it for three quarters of `silent_s`.
    """

    def __init__(
        self, operations: PoolOperations, closed_s: float, silent_s: float, metrics: Metrics
    ) -> None:
        self._operations = operations
        self._closed_s = closed_s
        self._silent_s = silent_s
        self.heard_s = silent_s / 8
        self._metrics = metrics
        self._lives: dict[str, _Life] = {}

    def knows(self, entry_id: str) -> bool:
        """Whether it is one of these."""
        return entry_id in self._lives

    def found(self, entry_id: str, request: QueuedRequest | None) -> None:
        """An entry of the service before this one; `request`: it has a lock."""
        self._lives[entry_id] = _Life(clock(), request)

    def is_late(self, entry_id: str, holder: RemoteHolder) -> bool:
        """Whether a later connection has served it: what comes on this one was held up on its way.

        It may have been ended in order by now, after a process was killed whose successor has that later one.
        """
        life = self._lives.get(entry_id)
        return life is not None and holder.number < life.newest

    def serve(self, entry_id: str, holder: RemoteHolder) -> QueuedRequest | None:
        """A session serves this entry from now on; returns the request if it waited without one.

        Another session that serves it is replaced.
        """
        life = self._lives.setdefault(entry_id, _Life(clock()))
        other, request = life.holder, life.request
        life.holder, life.left_by, life.closed_at, life.request = holder, None, None, None
        life.newest = holder.number
        if other is not None:
            request = other.owner.hand_over(entry_id)
            if other is not holder:
                other.owner.refuse(replaced(entry_id))
        return request

    def left(self, entry_id: str, by_client: bool, request: QueuedRequest | None = None) -> None:
        """The connection of the session that served it has ended, by its client or in another way.

        `request`: it waits.
        """
        life = self._lives.get(entry_id)
        if life is None or life.holder is None:
            return
        life.heard_at, life.request = life.holder.heard_at, request
        if by_client:
            life.closed_at = clock()
        else:
            life.left_by = life.holder
        life.holder = None

    def gone(self, session: RemoteHolder) -> None:
        """The client of a session whose connection we have ended is seen to know that it has ended."""
        for life in self._lives.values():
            if life.left_by is session:
                life.left_by, life.closed_at = None, clock()

    def forget(self, entry_id: str) -> None:
        """It is over, or none of ours."""
        life = self._lives.pop(entry_id, None)
        if life is not None and life.request is not None:
            life.request.lock.close()

    def has_been_ended(self, entry_id: str) -> bool:
        """Whether somebody else ended it: its client cannot come back."""
        life = self._lives.get(entry_id)
        return life is not None and life.ended_at is not None

    def end(self, entry_id: str) -> bool:
        """Somebody else ends it; its client is told, and has `silent_s` to give it back. False: not ours."""
        life = self._lives.get(entry_id)
        if life is None:
            return False
        if life.ended_at is None:
            life.ended_at = clock()
        return True

    async def run(self) -> None:
        """End what is over, again and again."""
        while True:
            self.look()
            await asyncio.sleep(min(_LONGEST_PAUSE_S, self._closed_s / 20))

    def look(self) -> None:
        """End what is over."""
        now = clock()
        for entry_id, life in list(self._lives.items()):
            at, why = life.end(self._closed_s, self._silent_s)
            if now >= at and self._end(entry_id, life, why):
                self._metrics.lost.labels(why).inc()
                _log.info("remote lease lost", extra={"lease": entry_id, "reason": why})

    def _end(self, entry_id: str, life: _Life, why: str) -> bool:
        try:
            self._operations.leave(entry_id)
        except BitfusionError as error:
            if not life.is_stuck:
                life.is_stuck = True
                _log.error("lease cannot be ended", extra={"lease": entry_id, "reason": str(error)})
            return False
        self.forget(entry_id)
        if life.holder is not None:
            life.holder.owner.hand_over(entry_id)
            if why == SILENT:  # otherwise it knows
                heard = f"nothing was heard from you for {self._silent_s:g} seconds"
                lost = f"your lease or request {entry_id} has ended: {heard}"
                life.holder.owner.refuse(Refusal(refusal_codes.ENDED, lost, "ask for GPUs again"))
        return True


def replaced(entry_id: str) -> Refusal:
    """For the connection that has lost a lease or request to another of its client."""
    return Refusal(
        refusal_codes.REPLACED, f"another connection has come back to your lease or request {entry_id}"
    )
