"""The session of a client on another machine: what it has outlives its connection for a while."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from bitfusion_pool.ledger.entries import HELD, RESERVED, WAITING, Entry
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import End, Hello, Release, Resume
from bitfusion_pool.messages.from_service import DIRECT, INDIRECT, Released
from bitfusion_pool.messages.message import Message
from bitfusion_pool.service.connections.route import route
from bitfusion_pool.service.leases.operations import over
from bitfusion_pool.service.leases.queued_request import QueuedRequest
from bitfusion_pool.service.leases.reservation_use import ReservationUse
from bitfusion_pool.service.refusal import Refusal
from bitfusion_pool.service.sessions.issuing import TokenIssuing
from bitfusion_pool.service.sessions.session import Session


class RemoteSession(Session):
    """A session over TLS; a `RemoteHolder` for `remote_leases`.

    Args:
        parts: Those of every session.
        issuing: What issues tokens.
        announced: The maximum segment size that the other end of the connection announced; see `route`.

    Attributes:
        heard_at: When the client said something last, by `liveness.clock`.
        number: Later connections have higher ones.
    """

    _numbers = count()

    def __init__(self, *parts: Any, issuing: TokenIssuing, announced: int) -> None:
        super().__init__(*parts)
        self._issuing = issuing
        self._announced = announced
        self._route = INDIRECT
        self.number = next(self._numbers)
        self._is_issuing = False
        self.heard_at = clock()
        self._uses: dict[str, ReservationUse] = {}
        self._has_left_something = False  # at an end that is ours

    def line(self, line: bytes) -> None:
        """See `LineHandler`."""
        self.heard_at = clock()
        super().line(line)

    def closed(self, by_client: bool) -> bool:
        """See `LineHandler`. What a proxy has ended says nothing of the client."""
        is_direct = self._route == DIRECT
        by_client = by_client and is_direct
        super().closed(by_client)
        for use in self._uses.values():
            # maybe the client comes back; its program may run as long
            left_s = self._operations.times.closed_s if by_client else use.over_at(self.heard_at) - clock()
            self._loop.call_later(left_s, use.close)
        self._uses.clear()
        return self._has_left_something and is_direct

    def gone(self) -> None:
        """See `LineHandler`."""
        self._remote_leases.gone(self)

    def show_position(self, entry_id: str, refresh: bool) -> None:
        """See `Watched`. A client that is not heard is told nothing: it must not believe that it is heard."""
        if clock() - self.heard_at <= self._remote_leases.heard_s:
            super().show_position(entry_id, refresh)

    def look_again(self) -> None:
        """Take over the token's limits as they are now; end the connection if the token has ended.

        The use of reservations ends, too, if the client says nothing.

        Raises:
            PoolUnreadable: The tokens cannot be read.
        """
        if self._peer is None:
            return
        for entry_id, use in list(self._uses.items()):
            if clock() >= use.over_at(self.heard_at):
                self._end_use(entry_id)
        try:
            self._peer = self._admission.look_again()
        except Refusal as refusal:
            self.refuse(refusal)

    # --- as RemoteHolder -------------------------------------------------------------------------------

    def hand_over(self, entry_id: str) -> QueuedRequest | None:
        """See `RemoteHolder`."""
        self._forget(entry_id)
        wait = self._wait
        if wait is None or wait.entry.entry_id != entry_id:
            return None
        self._wait = None
        self._entry_watch.remove(entry_id)
        return wait

    def replaced(self, entry_id: str) -> None:
        """See `RemoteHolder`."""
        self.refuse(_replaced(entry_id))

    def lost(self, entry_id: str, why: str) -> None:
        """See `RemoteHolder`."""
        self.refuse(
            Refusal(
                refusal_codes.ENDED,
                f"your lease or request {entry_id} has ended: {why}",
                "ask for GPUs again",
            )
        )

    # --- where it differs ------------------------------------------------------------------------------

    def _handle(self, line: bytes) -> None:
        for use in self._uses.values():
            use.heard()
        super()._handle(line)

    def _route_of(self, hello: Hello) -> str:
        self._route = route(self._announced, hello.segment)
        self._metrics.connected(self._route)
        return self._route

    def _issue(self, message: Message) -> None:
        if not self.peer.is_issuer:
            raise Refusal(
                refusal_codes.NOT_ALLOWED,
                f"the token of {self.peer.user} issues no tokens",
                "use an issuer's: its administrator makes one by bitfusion-pool token create NAME --issuer",
            )
        if self._is_issuing:
            raise Refusal(refusal_codes.BAD_MESSAGE, "this connection asks for a token already")
        self._is_issuing = True
        try:
            self._issuing.ask(message, self.peer, self._answer)
        except BaseException:
            self._is_issuing = False
            raise

    def _answer(self, answer: Callable[[], Message]) -> None:
        self._is_issuing = False
        self._do(lambda: self._send(answer()))

    def _took(self, entry: Entry) -> None:
        self._remote_leases.serve(entry.entry_id, self)

    def _part_from_queue(self, by_client: bool) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            self._entry_watch.remove(wait.entry.entry_id)
            self._remote_leases.left(wait.entry.entry_id, by_client, wait)
            self._has_left_something = not by_client

    def _part_from_lease(self, entry_id: str, by_client: bool) -> None:
        self._remote_leases.left(entry_id, by_client)
        self._has_left_something = not by_client

    def _grant(self, entry: Entry, lock: LeaseLock, waited_s: float) -> None:
        # the client counts from the grant; so do we, however long it was not heard while it waited
        self.heard_at = clock()
        super()._grant(entry, lock, waited_s)
        if entry.kind == RESERVED:
            self._remote_leases.forget(entry.entry_id)  # its time to live counts now

    def _resume(self, message: Resume) -> None:
        entry = self._operations.own_entry(message.lease, message.secret, self.peer)
        if self._remote_leases.has_been_ended(entry.entry_id):
            raise over(entry.entry_id)
        if self._remote_leases.is_late(entry.entry_id, self):
            raise _replaced(entry.entry_id)
        if entry.state == HELD and entry.kind == RESERVED and not self._remote_leases.knows(entry.entry_id):
            granted, use = self._operations.use(message.lease, message.secret, self.peer)
            self._end_use(message.lease)
            self._uses[message.lease] = use
            self._send(granted)
            return
        if self._wait is not None and self._wait.entry.entry_id != entry.entry_id:
            self._check_that_nothing_waits()
        request = self._remote_leases.serve(entry.entry_id, self)
        self._metrics.resumed()
        if entry.state == WAITING or request is not None:  # maybe granted while the connection was closed
            lock = LeaseLock.none(entry.entry_id) if request is None else request.lock
            self._begin(entry, lock, message.inside)
        else:
            self._leases.add(entry.entry_id)
            self._entry_watch.add(entry.entry_id, self)
            self._send(self._operations.granted(entry))

    def _end_use(self, entry_id: str) -> None:
        use = self._uses.pop(entry_id, None)
        if use is not None:
            use.close()

    def _end_uses(self) -> None:
        for entry_id in list(self._uses):
            self._end_use(entry_id)

    def _cancel(self) -> None:
        self._end_uses()
        super()._cancel()

    def _release(self, message: Release) -> None:
        wait = self._wait
        if wait is not None and wait.entry.entry_id == message.lease:
            self._operations.own_entry(message.lease, message.secret, self.peer)
            self._cancel()
            return
        super()._release(message)
        self._remote_leases.forget(message.lease)

    def _end(self, message: End) -> None:
        if message.entry in self._leases:
            # it says so itself, so its program has ended
            self._operations.leave(message.entry)
            self._forget(message.entry)
            self._remote_leases.forget(message.entry)
            self._released(Released(message.entry))
            return
        super()._end(message)

    def entry_gone(self, entry_id: str) -> None:
        """See `Watched`."""
        has_time = self._remote_leases.has_been_ended(entry_id)
        if not has_time:
            self._remote_leases.forget(entry_id)
        super().entry_gone(entry_id)
        if has_time:
            self._leases.add(entry_id)  # until its client gives it back or hangs up

    def _drop(self, entry_id: str, lock: LeaseLock) -> None:
        super()._drop(entry_id, lock)
        self._remote_leases.forget(entry_id)


def _replaced(entry_id: str) -> Refusal:
    return Refusal(
        refusal_codes.REPLACED, f"another connection has come back to your lease or request {entry_id}"
    )
