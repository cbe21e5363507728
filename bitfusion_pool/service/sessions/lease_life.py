"""How what a client has lives: on this machine by its lock, over TLS by words and clocks.

Each session is given one `LeaseLife`, which it asks at each step of its leases and of its request that waits.
On this machine a lease lasts as long as a process has its lock, and a request as long as its connection.
Nobody sees the processes of another machine: what they have outlives a connection for a while, and silence
for longer (`RemoteLeases`). Methods with the same name are the same step; `LifeByWords` says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from bitfusion_pool.ledger.entries import HELD, RESERVED, WAITING, Entry
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.messages.from_client import Hello, Resume
from bitfusion_pool.messages.from_service import DIRECT, INDIRECT, LOCAL, Granted, Released
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.connections.route import route
from bitfusion_pool.service.leases.lease_watch import LeaseWatch
from bitfusion_pool.service.leases.operations import PoolOperations, over
from bitfusion_pool.service.leases.remote_leases import LeaseOwner, QueuedRequest, RemoteLeases, replaced
from bitfusion_pool.service.leases.reservation_use import ReservationUse
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.sessions.kept_requests import KeptRequests


class LifeByLock:
    """That of a client of this machine."""

    owner: LeaseOwner  # its session, set by that
    route = LOCAL
    is_heard = True
    by_words = False  # whether a client may release what waits, too

    def __init__(
        self, operations: PoolOperations, lease_watch: LeaseWatch, kept_requests: KeptRequests
    ) -> None:
        self._operations = operations
        self._lease_watch = lease_watch
        self._kept_requests = kept_requests

    def resume(
        self, message: Resume, peer: Peer, check_that_nothing_waits: Callable[[str], None]
    ) -> QueuedRequest | tuple[Granted, int]:
        """Only to a request of the service before this one, or to a lease that is in use."""
        check_that_nothing_waits("")
        kept = self._kept_requests.take(message.lease, message.secret, peer)
        if kept is not None:
            return QueuedRequest(*kept, message.inside)
        return self._operations.resume(message.lease, message.secret, peer)

    def end_own(self, entry_id: str, peer: Peer) -> Released:
        """It lasts as long as a process has its lock."""
        return self._operations.end(entry_id, peer)

    def drop(self, entry_id: str, lock: LeaseLock) -> None:
        """The lock goes with it."""
        self._operations.drop(entry_id, lock)

    def left(self, entry_id: str, by_client: bool, request: QueuedRequest | None = None) -> None:
        """A request ends with its connection, a lease with the last process."""
        if request is not None:
            self.drop(entry_id, request.lock)
        else:
            self._lease_watch.add(entry_id)

    def _nothing(self, *_: object) -> bool:
        """The kernel tells of a lock: no word, and no silence, says more."""
        return False

    greeted = heard = began = granted = ended = keeps_ended = ends_uses = _nothing
    closed = gone = look_again = _nothing


class LifeByWords:
    """That of a client on another machine; `remote_leases` knows those of all of them.

    `announced` is the maximum segment size that the other end of the connection announced; see `route`.

    Attributes:
        route: How the client has come, one of `ROUTES`.
        heard_at: When it said something last, by `liveness.clock`.
        number: Later connections have higher ones.
    """

    owner: LeaseOwner
    by_words = True
    _numbers = count()

    def __init__(
        self,
        operations: PoolOperations,
        remote_leases: RemoteLeases,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        announced: int,
    ) -> None:
        self._operations = operations
        self._remote_leases = remote_leases
        self._metrics = metrics
        self._loop = loop
        self._announced = announced
        self.route = INDIRECT
        self.number = next(self._numbers)
        self.heard_at = clock()
        self._uses: dict[str, ReservationUse] = {}
        self._has_left_something = False  # at an end that is ours

    def greeted(self, hello: Hello) -> None:
        """The client was let in: `route` is known from now on."""
        self.route = route(self._announced, hello.segment)
        self._metrics.connected.labels(self.route).inc()

    def heard(self) -> None:
        """The client has said something. Raises PoolUnreadable."""
        self.heard_at = clock()
        for use in self._uses.values():
            use.heard()

    @property
    def is_heard(self) -> bool:
        """Whether it may be told something unasked: who hears something believes that it is heard."""
        return clock() - self.heard_at <= self._remote_leases.heard_s

    def began(self, entry_id: str) -> None:
        """An entry of this client's is new in the ledger."""
        self._remote_leases.serve(entry_id, self)

    def granted(self, entry: Entry) -> None:
        """An entry was granted, of which the client hears next."""
        # the client counts from the grant; so do we, however long it was not heard while it waited
        self.heard_at = clock()
        if entry.kind == RESERVED:
            self.ended(entry.entry_id)  # its time to live counts now

    def resume(
        self, message: Resume, peer: Peer, check_that_nothing_waits: Callable[[str], None]
    ) -> QueuedRequest | tuple[Granted, int]:
        """Come back to a request, which may have been granted meanwhile, or to a lease and its descriptor.

        Another connection that has it loses it to this one, but not to an earlier one. Raises Refusal.
        `check_that_nothing_waits` raises one if the session waits, but not for the id that it is given.
        """
        entry = self._operations.own_entry(message.lease, message.secret, peer)
        if self._remote_leases.has_been_ended(entry.entry_id):
            raise over(entry.entry_id)
        if self._remote_leases.is_late(entry.entry_id, self):
            raise replaced(entry.entry_id)
        if entry.state == HELD and entry.kind == RESERVED and not self._remote_leases.knows(entry.entry_id):
            granted, use = self._operations.use(message.lease, message.secret, peer)
            self._end_use(message.lease)
            self._uses[message.lease] = use
            return granted, -1
        check_that_nothing_waits(entry.entry_id)
        request = self._remote_leases.serve(entry.entry_id, self)
        self._metrics.resumed.inc()
        if entry.state == WAITING or request is not None:  # maybe granted while the connection was closed
            lock = LeaseLock.none(entry.entry_id) if request is None else request.lock
            return QueuedRequest(entry, lock, message.inside)
        return self._operations.granted(entry), -1

    def end_own(self, entry_id: str, peer: Peer) -> Released:
        """The client ends its lease by its id: it says so itself, so its program has ended."""
        self._operations.leave(entry_id)
        return Released(entry_id)

    def keeps_ended(self, entry_id: str) -> bool:
        """Somebody else has ended it; whether its client has time to end its program, and give it back."""
        if self._remote_leases.has_been_ended(entry_id):
            return True
        self.ended(entry_id)
        return False

    def ended(self, entry_id: str) -> None:
        """The client has given it back."""
        self._remote_leases.forget(entry_id)

    def ends_uses(self) -> None:
        """The client uses reservations no more."""
        for entry_id in list(self._uses):
            self._end_use(entry_id)

    def drop(self, entry_id: str, lock: LeaseLock) -> None:
        """End a request, or what was granted and is not passed on."""
        self._operations.drop(entry_id, lock)
        self.ended(entry_id)

    def left(self, entry_id: str, by_client: bool, request: QueuedRequest | None = None) -> None:
        """The connection ends, by its client or otherwise; `request`: the entry waits."""
        by_client = by_client and self.route == DIRECT  # what a proxy has ended says nothing of the client
        self._remote_leases.left(entry_id, by_client, request)
        self._has_left_something = not by_client

    def closed(self, by_client: bool) -> bool:
        """The connection has ended, after `left` of all entries; whether `gone` matters."""
        is_direct = self.route == DIRECT
        for use in self._uses.values():
            # maybe the client comes back; its program may run as long
            times = self._operations.times
            left_s = times.closed_s if by_client and is_direct else use.over_at(self.heard_at) - clock()
            self._loop.call_later(left_s, use.close)
        self._uses.clear()
        return self._has_left_something and is_direct

    def gone(self) -> None:
        """The client is seen to know that we have ended the connection."""
        self._remote_leases.gone(self)

    def look_again(self) -> None:
        """Called now and then: the use of a reservation ends where its client says nothing."""
        for entry_id, use in list(self._uses.items()):
            if clock() >= use.over_at(self.heard_at):
                self._end_use(entry_id)

    def _end_use(self, entry_id: str) -> None:
        use = self._uses.pop(entry_id, None)
        if use is not None:
            use.close()


LeaseLife: TypeAlias = LifeByLock | LifeByWords
