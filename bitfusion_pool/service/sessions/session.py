"""One client's session: what it says, in which order it may say it, and what it is answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from bitfusion_client.errors import BitfusionError, InvalidRequest, NeverSatisfiable
from bitfusion_client.one_line import one_line
from bitfusion_client.typed_lines import InvalidMessage
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
    Report,
    Resume,
    parse_from_client,
)
from bitfusion_pool.messages.from_service import Granted, Refused, Released
from bitfusion_pool.messages.message import LONGEST_FROM_CLIENT, PROTOCOL, Message
from bitfusion_pool.service.connections.admission import Admission
from bitfusion_pool.service.connections.client_connection import ClientConnection
from bitfusion_pool.service.connections.connection_counts import CROWDED
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.leases.lease_watch import LeaseWatch
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.leases.remote_leases import QueuedRequest, RemoteLeases
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal, RefusalLog, refusal_of
from bitfusion_pool.service.sessions.entry_watch import EntryWatch
from bitfusion_pool.service.sessions.issuing import IssuerRequests, TokenIssuing
from bitfusion_pool.service.sessions.kept_requests import KeptRequests
from bitfusion_pool.service.sessions.lease_life import LeaseLife

_log = logging.getLogger(__name__)
HELLO_S = 5.0  # from the connection to the first message


class Session:
    """Between a connection and the pool: a `LineHandler` of the one, `Watched` for the other.

    `life` is how the leases of this client live, the only difference between this machine and another.
    """

    def __init__(
        self,
        connection: ClientConnection,
        admission: Admission,
        life: LeaseLife,
        operations: PoolOperations,
        entry_watch: EntryWatch,
        lease_watch: LeaseWatch,
        kept_requests: KeptRequests,
        remote_leases: RemoteLeases,
        issuing: TokenIssuing | None,
        metrics: Metrics,
        refusals: RefusalLog,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[Session], None],
    ) -> None:
        self._admission = admission
        self._peer: Peer | None = None
        self._connection = connection
        self._life = life
        life.owner = self
        self._operations = operations
        self._entry_watch = entry_watch
        self._lease_watch = lease_watch
        self._kept_requests = kept_requests
        self._remote_leases = remote_leases
        self._issuing = IssuerRequests(issuing)
        self._metrics = metrics
        self._refusals = refusals
        self._loop = loop
        self._on_end = on_end
        self._asked: Acquire | None = None  # before it is in the ledger
        self._is_looking = False
        self._wait: QueuedRequest | None = None
        self._leases: set[str] = set()
        self._hello_timer = loop.call_later(HELLO_S, self._no_hello)

    @property
    def peer(self) -> Peer:
        """The client. Only once it has said hello."""
        if self._peer is None:
            raise RuntimeError("no hello was received")
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
        except (BitfusionError, Refusal) as error:
            answer = refusal_of(error)
            if answer.code == refusal_codes.UNREADABLE and answer is not error:
                _log.error("request failed", extra={"client": self._shown, "reason": str(error)})
            self.refuse(answer)

    def line_too_long(self) -> None:
        """See `LineHandler`."""
        why = f"a message has at most {LONGEST_FROM_CLIENT} bytes, this one has more"
        self.refuse(Refusal(refusal_codes.BAD_MESSAGE, why))

    def gone(self) -> None:
        """See `LineHandler`."""
        self._life.gone()

    def closed(self, by_client: bool) -> bool:
        """See `LineHandler`."""
        self._hello_timer.cancel()
        self._part_from_queue(by_client)
        for lease in self._leases:
            self._entry_watch.remove(lease)
            self._life.left(lease, by_client)
        self._leases.clear()
        self._admission.over()
        self._on_end(self)
        return self._life.closed(by_client)

    def refuse(self, refusal: Refusal) -> None:
        """Tell the client, and end the connection where the refusal does so."""
        self._refusals.refused(self._shown, refusal)
        self._send(refusal.to_message())
        if refusal.code in refusal_codes.ENDS_THE_CONNECTION or self._peer is None:
            self._part_from_queue(by_client=False)
            self._connection.end()

    def end_of_service(self) -> None:
        """The service ends: whoever waits hears it. Leases stay, and requests for the next service."""
        self._asked = None
        wait, self._wait = self._wait, None
        if wait is not None:
            self._kept_requests.keep(wait.entry.entry_id, wait.lock)
        why = "the service of this pool ends or starts anew; what you hold stays yours"
        self._send(Refused(refusal_codes.SERVICE_ENDS, why, "ask again in a moment"))
        self._connection.end()

    def look_again(self) -> None:
        """Take over the client's limits as they are now; end the connection if its token has ended.

        Raises:
            PoolUnreadable: The tokens cannot be read.
        """
        if self._peer is None:
            return
        self._life.look_again()
        try:
            self._peer = self._admission.look_again()
        except Refusal as refusal:
            self.refuse(refusal)

    def make_room(self) -> None:
        """End the connection, of a client that nobody knows yet; without words, so that it tries again."""
        self._refusals.refused(self._shown, Refusal(refusal_codes.TOO_MANY, CROWDED))
        self._connection.close()

    def _no_hello(self) -> None:
        self.refuse(Refusal(refusal_codes.TOO_SLOW, f"no hello came within {HELLO_S:g} seconds"))

    # --- from the pool ---------------------------------------------------------------------------------

    def entry_granted(self, entry_id: str) -> None:
        """See `Watched`."""
        wait = self._take_wait(entry_id)
        if wait is None:
            return
        try:
            entry = self._operations.ledger.entry(entry_id)
            if entry is None:
                raise _ended(entry_id)
            self._grant(entry, wait.lock, time.monotonic() - wait.since)
        except (BitfusionError, Refusal) as error:
            self._give_up(entry_id, wait.lock, refusal_of(error))

    def entry_gone(self, entry_id: str) -> None:
        """See `Watched`."""
        wait = self._take_wait(entry_id)
        if wait is not None:
            wait.lock.close()
        if self._life.keeps_ended(entry_id):
            self._leases.add(entry_id)  # until its client gives it back or hangs up
        else:
            self._leases.discard(entry_id)
        self.refuse(_ended(entry_id))

    def show_position(self, entry_id: str, refresh: bool) -> None:
        """See `Watched`."""
        wait = self._wait if self._waits_for(entry_id) else None
        if wait is None or self._connection.is_behind or not self._life.is_heard:
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

    def hand_over(self, entry_id: str) -> QueuedRequest | None:
        """See `LeaseOwner`."""
        self._forget(entry_id)
        wait = self._take_wait(entry_id)
        if wait is not None:
            self._entry_watch.remove(entry_id)
        return wait

    # --- what a client may say -------------------------------------------------------------------------

    def _handle(self, line: bytes) -> None:
        self._life.heard()
        try:
            message = parse_from_client(line)
        except InvalidMessage as error:
            raise Refusal(
                refusal_codes.BAD_MESSAGE, f"this is not a message from a pool's client: {one_line(error)}"
            ) from None
        except InvalidRequest:
            if self._peer is not None:
                raise
            message = None
        if self._peer is None:
            self._hello(message)
        elif isinstance(message, FROM_ISSUERS):
            self._issuing.ask(message, self._peer, self._answer)
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
        elif isinstance(message, Report):
            self._report(message)
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
        self._life.greeted(message)
        self._send(self._operations.welcome(self._peer, self._life.route))

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
            self._do(lambda: self._submit(message))

    def _submit(self, message: Acquire) -> None:
        entry, lock = self._operations.submit(message, self.peer)
        self._life.began(entry.entry_id)
        self._begin(QueuedRequest(entry, lock, message.inside))

    def _check_that_nothing_waits(self, but: str = "") -> None:
        if self._asked is not None or (self._wait is not None and not self._waits_for(but)):
            raise Refusal(refusal_codes.BAD_MESSAGE, "this connection waits for GPUs already")

    def _begin(self, request: QueuedRequest) -> None:
        entry, lock = request.entry, request.lock
        if entry.state == WAITING:
            self._wait = request
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
        self._life.granted(entry)
        if entry.kind == RESERVED:
            self._entry_watch.remove(entry.entry_id)
        self._metrics.waits.observe(waited_s)
        _log.info(
            "lease granted",
            extra={
                "lease": entry.entry_id,
                "user": self.peer.user,
                "size": entry.request.describe(),
                "server": granted.server.key,
                "waited_s": round(waited_s, 3),
                "route": self._life.route,
            },
        )
        self._tell_granted(granted, fd)

    def _tell_granted(self, granted: Granted, fd: int) -> None:
        entry = granted.entry
        if entry.kind != RESERVED:
            self._leases.add(entry.entry_id)
            self._entry_watch.add(entry.entry_id, self)
        self._connection.send(granted.format(), fd)

    def _cancel(self) -> None:
        wait, self._wait, self._asked = self._wait, None, None
        self._life.ends_uses()
        if wait is not None:
            self._drop(wait.entry.entry_id, wait.lock)
        self._send(Released(wait.entry.entry_id if wait else ""))

    def _resume(self, message: Resume) -> None:
        found = self._life.resume(message, self.peer, self._check_that_nothing_waits)
        if isinstance(found, QueuedRequest):
            self._begin(found)
        else:
            self._tell_granted(*found)

    def _release(self, message: Release) -> None:
        if self._life.by_words and self._waits_for(message.lease):
            self._operations.own_entry(message.lease, message.secret, self.peer)
            self._cancel()
            return
        released = self._operations.release(message.lease, message.secret, self.peer)
        self._forget(message.lease)
        self._released(released)
        self._life.ended(message.lease)

    def _end(self, message: End) -> None:
        if self._waits_for(message.entry):
            self._cancel()
            return
        is_own = message.entry in self._leases
        released = (self._life.end_own if is_own else self._operations.end)(message.entry, self.peer)
        if not (released.in_use and self._remote_leases.end(message.entry)):
            self._remote_leases.forget(message.entry)
        if is_own:
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

    def _report(self, message: Report) -> None:
        """Without an answer: its client waits for others."""
        try:
            activity = self._operations.note_report(message, self.peer)
        except Refusal:
            return  # of a lease that is over
        except BitfusionError as error:
            _log.error("report cannot be noted", extra={"client": self._shown, "reason": str(error)})
            return
        self._metrics.activity(message.lease, activity.idle_since)
        if _log.isEnabledFor(logging.DEBUG):  # a line for every cell
            _log.debug(
                "kernel said what it does",
                extra={
                    "lease": message.lease,
                    "user": self.peer.user,
                    "state": activity.state,
                    "for_s": round(message.for_s, 3),
                    "idle_s": None if activity.idle_since is None else round(message.idle_s, 3),
                    "notebook": activity.notebook,
                },
            )

    # --- inside ----------------------------------------------------------------------------------------

    @property
    def _shown(self) -> int | str:
        """The client, in the log."""
        if self._peer is None:
            return self._admission.known_as
        return self._peer.user if self._peer.is_remote else self._peer.uid

    def _send(self, message: Message) -> None:
        self._connection.send(message.format())

    def _answer(self, answer: Callable[[], Message]) -> None:
        self._do(lambda: self._send(answer()))

    def _waits_for(self, entry_id: str) -> bool:
        return self._wait is not None and self._wait.entry.entry_id == entry_id

    def _take_wait(self, entry_id: str) -> QueuedRequest | None:
        """The request that waits here if it is this one; it waits here no more."""
        if not self._waits_for(entry_id):
            return None
        wait, self._wait = self._wait, None
        return wait

    def _part_from_queue(self, by_client: bool) -> None:
        """The connection ends."""
        wait, self._wait, self._asked = self._wait, None, None
        if wait is not None:
            self._entry_watch.remove(wait.entry.entry_id)
            self._life.left(wait.entry.entry_id, by_client, wait)

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
        self._life.drop(entry_id, lock)


def _ended(entry_id: str) -> Refusal:
    return Refusal(
        refusal_codes.ENDED, f"somebody ended your request or lease {entry_id}", "ask for GPUs again"
    )
