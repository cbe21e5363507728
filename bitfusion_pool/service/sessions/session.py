"""One client's session: what it says, in which order it may say it, and what it is answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from bitfusion_client.errors import BitfusionError, InvalidRequest, NeverSatisfiable
from bitfusion_client.one_line import one_line
from bitfusion_pool.ledger.entries import RESERVED, WAITING, Entry
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import (
    FROM_ISSUERS,
    Acquire,
    Alive,
    Cancel,
    End,
    Hello,
    Look,
    Release,
    Renew,
    Resume,
    parse_from_client,
)
from bitfusion_pool.messages.from_service import LOCAL, Released
from bitfusion_pool.messages.message import LONGEST_FROM_CLIENT, PROTOCOL, InvalidMessage, Message
from bitfusion_pool.service.connections.admission import Admission
from bitfusion_pool.service.connections.connection import Connection
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.connections.refusal_log import RefusalLog
from bitfusion_pool.service.leases.lease_watch import LeaseWatch
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.leases.queued_request import QueuedRequest
from bitfusion_pool.service.leases.remote_leases import RemoteLeases
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal, refusal_of
from bitfusion_pool.service.sessions.entry_watch import EntryWatch
from bitfusion_pool.service.sessions.kept_requests import KeptRequests

_log = logging.getLogger(__name__)
HELLO_S = 5.0  # from the connection to the first message


class Session:
    """Between a connection and the pool: a `LineHandler` of the one, `Watched` for the other.

    As it is here of a user of this machine, whose leases live by their locks; see also `remote_session`.
    """

    def __init__(
        self,
        connection: Connection,
        admission: Admission,
        operations: PoolOperations,
        entry_watch: EntryWatch,
        lease_watch: LeaseWatch,
        kept_requests: KeptRequests,
        remote_leases: RemoteLeases,
        metrics: Metrics,
        refusals: RefusalLog,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[Session], None],
    ) -> None:
        self._admission = admission
        self._peer: Peer | None = None
        self._connection = connection
        self._operations = operations
        self._entry_watch = entry_watch
        self._lease_watch = lease_watch
        self._kept_requests = kept_requests
        self._remote_leases = remote_leases
        self._metrics = metrics
        self._refusals = refusals
        self._loop = loop
        self._on_end = on_end
        self._asked: Acquire | None = None  # before it is in the ledger
        self._is_looking = False
        self._wait: QueuedRequest | None = None
        self._leases: set[str] = set()
        self._route = LOCAL
        self._hello_timer = loop.call_later(HELLO_S, self._no_hello)

    @property
    def peer(self) -> Peer:
        """The client. Only once it has said hello."""
        if self._peer is None:
            raise RuntimeError("nobody has said hello")
        return self._peer

    @property
    def known_as(self) -> int | str:
        """Whose turn its messages take."""
        return self._admission.known_as if self._peer is None else self._peer.uid

    # --- from the connection ---------------------------------------------------------------------------

    def line(self, line: bytes) -> None:
        """See `LineHandler`."""
        self._do(lambda: self._handle(line))

    def _do(self, step: Callable[[], None]) -> None:
        """Do what the client asks, and tell it what is refused."""
        try:
            step()
        except Refusal as refusal:
            self.refuse(refusal)
        except BitfusionError as error:
            answer = refusal_of(error)
            if answer.code == refusal_codes.UNREADABLE:
                _log.error("request failed", extra={"client": self._shown, "reason": str(error)})
            self.refuse(answer)

    def line_too_long(self) -> None:
        """See `LineHandler`."""
        why = f"a message has at most {LONGEST_FROM_CLIENT} bytes, this one has more"
        self.refuse(Refusal(refusal_codes.BAD_MESSAGE, why))

    def gone(self) -> None:
        """See `LineHandler`."""

    def closed(self, by_client: bool) -> bool:
        """See `LineHandler`."""
        self._hello_timer.cancel()
        self._asked = None
        self._part_from_queue(by_client)
        for lease in self._leases:
            self._entry_watch.remove(lease)
            self._part_from_lease(lease, by_client)
        self._leases.clear()
        self._admission.over()
        self._on_end(self)
        return False

    def refuse(self, refusal: Refusal) -> None:
        """Tell the client, and end the connection where the refusal does so."""
        self._refusals.refused(self._shown, refusal)
        self._send(refusal.to_message())
        if refusal.code in refusal_codes.ENDS_THE_CONNECTION or self._peer is None:
            self._asked = None
            self._part_from_queue(by_client=False)
            self._connection.end()

    def end_of_service(self) -> None:
        """The service ends: whoever waits hears it. Leases stay, and requests for the next service."""
        self._asked = None
        wait, self._wait = self._wait, None
        if wait is not None:
            self._kept_requests.keep(wait.entry.entry_id, wait.lock)
        self._send(
            Refusal(
                refusal_codes.SERVICE_ENDS,
                "the service of this pool ends or starts anew; what you hold stays yours",
                "ask again in a moment",
            ).to_message()
        )
        self._connection.end()

    def _no_hello(self) -> None:
        self.refuse(Refusal(refusal_codes.TOO_SLOW, f"no hello came within {HELLO_S:g} seconds"))

    # --- from the pool ---------------------------------------------------------------------------------

    def entry_granted(self, entry_id: str) -> None:
        """See `Watched`."""
        wait = self._wait
        if wait is None or wait.entry.entry_id != entry_id:
            return
        self._wait = None
        try:
            entry = self._operations.ledger.entry(entry_id)
            if entry is None:
                raise _ended(entry_id)
            self._grant(entry, wait.lock, time.monotonic() - wait.since)
        except Refusal as refusal:
            self._give_up(entry_id, wait.lock, refusal)
        except BitfusionError as error:
            self._give_up(entry_id, wait.lock, refusal_of(error))

    def entry_gone(self, entry_id: str) -> None:
        """See `Watched`."""
        if self._wait is not None and self._wait.entry.entry_id == entry_id:
            self._wait.lock.close()
            self._wait = None
        self._leases.discard(entry_id)
        self.refuse(_ended(entry_id))

    def show_position(self, entry_id: str, refresh: bool) -> None:
        """See `Watched`."""
        wait = self._wait
        if wait is None or wait.entry.entry_id != entry_id or self._connection.is_behind:
            return
        try:
            position = self._operations.position(wait.entry, wait.inside, self.peer)
        except NeverSatisfiable as error:
            self._wait = None
            self._give_up(entry_id, wait.lock, refusal_of(error))
            return
        except BitfusionError as error:
            _log.error("queue cannot be read", extra={"reason": str(error)})
            return
        shown = position.shown()
        if refresh or shown != wait.shown:
            wait.shown = shown
            self._send(self._operations.waiting(wait.entry, position))

    # --- what a client may say -------------------------------------------------------------------------

    def _handle(self, line: bytes) -> None:
        try:
            message = parse_from_client(line)
        except InvalidMessage as error:
            raise Refusal(
                refusal_codes.BAD_MESSAGE, f"this is no message of a pool's client: {one_line(error)}"
            ) from None
        except InvalidRequest:
            if self._peer is not None:
                raise
            message = None
        if self._peer is None:
            self._hello(message)
        elif isinstance(message, FROM_ISSUERS):
            self._issue(message)
        elif self._peer.is_issuer and message is not None and not isinstance(message, Alive):
            raise Refusal(
                refusal_codes.NOT_ALLOWED,
                f"the token of {self._peer.user} issues tokens, and may do nothing else",
                "use a token that it has issued",
            )
        elif isinstance(message, Acquire):
            self._acquire(message)
        elif isinstance(message, Look):
            self._look()
        elif isinstance(message, Cancel):
            self._cancel()
        elif isinstance(message, Release):
            self._release(message)
        elif isinstance(message, Resume):
            self._resume(message)
        elif isinstance(message, Renew):
            self._send(self._operations.renew(message.lease, message.secret, self.peer))
        elif isinstance(message, End):
            self._end(message)
        elif isinstance(message, Alive):
            self._send(message)
        # anything else is of a later version, or a second hello, which says nothing new

    def _hello(self, message: Message | None) -> None:
        if not isinstance(message, Hello):
            raise Refusal(refusal_codes.BAD_MESSAGE, "the first message of a client is hello")
        if message.protocol != PROTOCOL:
            raise Refusal(
                refusal_codes.PROTOCOL,
                f"the service of this pool speaks version {PROTOCOL} of its messages, "
                f"your bitfusion command version {message.protocol}",
                "install the version of kubeflow-bitfusion that the service has",
            )
        self._peer = self._admission.admit(message)
        self._hello_timer.cancel()
        self._send(self._operations.welcome(self._peer, self._route_of(message)))

    def _look(self) -> None:
        if self._is_looking:  # one at a time, or a client could let them pile up
            self._connection.send(self._operations.snapshot_line())
            return
        self._is_looking = True
        self._operations.once_known(self._show)

    def _show(self) -> None:
        self._is_looking = False
        self._do(lambda: self._connection.send(self._operations.snapshot_line()))

    def _acquire(self, message: Acquire) -> None:
        self._check_that_nothing_waits()
        self._asked = message
        self._operations.once_known(self._acquire_asked)

    def _acquire_asked(self) -> None:
        message, self._asked = self._asked, None
        if message is not None:  # else the client has left meanwhile
            self._do(lambda: self._begin(*self._operations.submit(message, self.peer), message.inside))

    def _check_that_nothing_waits(self) -> None:
        if self._wait is not None or self._asked is not None:
            raise Refusal(refusal_codes.BAD_MESSAGE, "this connection waits for GPUs already")

    def _begin(self, entry: Entry, lock: LeaseLock, inside: str) -> None:
        self._took(entry)
        if entry.state == WAITING:
            self._wait = QueuedRequest(entry, lock, inside)
            self._entry_watch.add(entry.entry_id, self)
            self.show_position(entry.entry_id, True)
            return
        try:
            self._grant(entry, lock, 0.0)
        except BaseException:
            self._drop(entry.entry_id, lock)
            raise

    def _grant(self, entry: Entry, lock: LeaseLock, waited_s: float) -> None:
        granted, fd = self._operations.grant(entry, lock)
        if entry.kind != RESERVED:
            self._leases.add(entry.entry_id)
            self._entry_watch.add(entry.entry_id, self)
        else:
            self._entry_watch.remove(entry.entry_id)
        self._metrics.granted(waited_s)
        _log.info(
            "lease granted",
            extra={
                "lease": entry.entry_id,
                "user": self.peer.user,
                "size": entry.request.describe(),
                "server": granted.server.key,
                "waited_s": round(waited_s, 3),
                "route": self._route,
            },
        )
        self._connection.send(granted.format(), fd)

    def _cancel(self) -> None:
        wait, self._asked = self._wait, None
        self._leave_queue()
        self._send(Released(wait.entry.entry_id if wait else ""))

    def _resume(self, message: Resume) -> None:
        self._check_that_nothing_waits()
        kept = self._kept_requests.take(message.lease, message.secret, self.peer)
        if kept is not None:
            self._begin(*kept, message.inside)
            return
        granted, fd = self._operations.resume(message.lease, message.secret, self.peer)
        if granted.entry.kind != RESERVED:
            self._leases.add(message.lease)
            self._entry_watch.add(message.lease, self)
        self._connection.send(granted.format(), fd)

    def _release(self, message: Release) -> None:
        released = self._operations.release(message.lease, message.secret, self.peer)
        self._forget(message.lease)
        self._released(released)

    def _end(self, message: End) -> None:
        if self._wait is not None and self._wait.entry.entry_id == message.entry:
            self._cancel()
            return
        released = self._operations.end(message.entry, self.peer)
        if not (released.in_use and self._remote_leases.end(message.entry)):
            self._remote_leases.forget(message.entry)
        if message.entry in self._leases:
            self._forget(message.entry)
        elif released.in_use:
            self._entry_watch.tell_gone(message.entry)
        self._released(released)

    def _released(self, released: Released) -> None:
        if released.in_use and not self._remote_leases.has_been_ended(released.lease):
            self._lease_watch.add(released.lease)
        _log.info(
            "lease released",
            extra={"lease": released.lease, "user": self.peer.user, "in_use": released.in_use},
        )
        self._send(released)

    # --- where a remote client differs -----------------------------------------------------------------

    def _route_of(self, hello: Hello) -> str:
        """How this client has come."""
        return self._route

    def _issue(self, message: Message) -> None:
        """An issuer asks for tokens."""
        raise Refusal(
            refusal_codes.NOT_ALLOWED,
            "tokens are issued to an issuer over the network",
            "on this machine its administrator issues them: bitfusion-pool token create",
        )

    def _took(self, entry: Entry) -> None:
        """An entry of this client is in the ledger."""

    def _part_from_queue(self, by_client: bool) -> None:
        """The connection ends, and with it a request that waits."""
        self._leave_queue()

    def _part_from_lease(self, entry_id: str, by_client: bool) -> None:
        """The connection has ended."""
        self._lease_watch.add(entry_id)

    # --- inside ----------------------------------------------------------------------------------------

    @property
    def _shown(self) -> int | str:
        """The client, in the log."""
        if self._peer is None:
            return self._admission.known_as
        return self._peer.user if self._peer.is_remote else self._peer.uid

    def _send(self, message: Message) -> None:
        self._connection.send(message.format())

    def _leave_queue(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            self._drop(wait.entry.entry_id, wait.lock)

    def _forget(self, entry_id: str) -> None:
        if entry_id in self._leases:
            self._leases.discard(entry_id)
            self._entry_watch.remove(entry_id)

    def _give_up(self, entry_id: str, lock: LeaseLock, refusal: Refusal) -> None:
        self._drop(entry_id, lock)
        self.refuse(refusal)

    def _drop(self, entry_id: str, lock: LeaseLock) -> None:
        self._entry_watch.remove(entry_id)
        self._leases.discard(entry_id)
        lock.close()
        try:
            self._operations.leave(entry_id)
        except BitfusionError as error:
            # its lock is gone, so the next look finds it dead
            _log.error("request cannot be ended", extra={"lease": entry_id, "reason": str(error)})


def _ended(entry_id: str) -> Refusal:
    return Refusal(
        refusal_codes.ENDED, f"somebody ended your request or lease {entry_id}", "ask for GPUs again"
    )
