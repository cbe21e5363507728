"""A pool behind a service: the commands ask the service, which owns the ledger.

This is the service of the machine, at a unix socket; `network_pool` says what is different over the network.
"""

from __future__ import annotations

import time

from bitfusion_client.errors import BitfusionError, ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pool.client.allocation_file import Allocation
from bitfusion_pool.client.connections.greeting import greet
from bitfusion_pool.client.connections.service_connection import ServiceConnection
from bitfusion_pool.client.connections.service_errors import ServiceAway, nonsense, refused
from bitfusion_pool.client.lease import Lease, server_of
from bitfusion_pool.client.log_output import LogOutput
from bitfusion_pool.inventory.emulation import emulation_from, environment_settings, split_settings
from bitfusion_pool.ledger.entries import RESERVED
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.waiting import DEFAULT_TIMEOUT_S, timed_out
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, End, Look, Release, Renew, Resume
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Refused,
    Released,
    Renewed,
    Waiting,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.client.connections.connection import Connection
    from bitfusion_pool.client.keeper.keeper_process import KeeperProcess
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Holder
    from bitfusion_pool.ledger.snapshot import Snapshot
    from bitfusion_pool.messages.message import Message

SILENCE_S = 30.0  # a request that waits hears something every ten seconds
RETRY_S = 0.5
_LONGEST_POSITION = 4000  # characters
_OF_ONE_REQUEST = (  # what is refused for a reason of its own, while the service would do other things
    refusal_codes.INVALID_REQUEST,
    refusal_codes.ENDED,
    refusal_codes.LEASE_OVER,
    refusal_codes.NOT_YOURS,
)


class ServicePool:
    """See `pool.Pool`.

    Args:
        place: The service's socket.
        environ: The environment of the command.

    Raises:
        ServiceAway: Nobody answers there.
        PoolUnreadable: The service does not take this client, or is none.
    """

    def __init__(self, place: str, environ: Mapping[str, str]) -> None:
        self.place = place
        self._connection, self.welcome = self._dial()
        try:
            settings = split_settings(self.welcome.emulation)
            self.emulation = emulation_from(settings, environment_settings(environ))
        except BaseException:
            self._connection.close()
            raise

    @property
    def servers(self) -> Sequence[Server]:
        """As the service named them in its welcome."""
        return self.welcome.servers

    def client_id(self) -> str:
        """As the service named it in its welcome."""
        return self.welcome.client_id

    def take(
        self,
        request: GpuRequest,
        holder: Holder,
        kind: str,
        inside: str,
        on_position: Callable[[str], None],
    ) -> Lease:
        """Ask, and wait for the service's word. If the service goes meanwhile, come back to the place."""
        may_wait = self.emulation.when_full == "wait"
        asked = Acquire(request, kind, holder.label, holder.pid, holder.host, inside, may_wait)
        limit = DEFAULT_TIMEOUT_S if request.timeout is None else request.timeout
        deadline = time.monotonic() + limit
        has_waited = False
        place: Resume | None = None
        while True:
            try:
                answer = self._exchange(place or asked)
                while isinstance(answer, Waiting):
                    has_waited = True
                    place = Resume(answer.entry, answer.secret, inside) if answer.entry else None
                    on_position(one_line(answer.text, _LONGEST_POSITION))
                    answer = self._next_position(min(SILENCE_S, deadline - time.monotonic()))
            except ServiceAway as error:
                if not has_waited:
                    raise
                if time.monotonic() >= deadline:
                    raise timed_out(request, limit) from None
                self._reconnect(error, deadline, place is not None)
                continue
            if place is not None and _is_over(answer):
                place = None
                self._log("the request has lost its place in the queue, and is made again", "WARN")
                continue
            if isinstance(answer, Granted):
                # a reservation has none before it is used
                return self._lease(answer, needs_lock=kind != RESERVED)
            raise self._refusal(answer, request)

    def set_aside(self) -> KeeperProcess | None:
        """Keep the connection: its end tells the service that this command has ended."""
        return None

    def release(self, lease: Lease) -> bool:
        """Drop the lock, then tell the service, which may have been started anew meanwhile."""
        lease.lock.close()
        return self._end(lease.entry.entry_id, lease.secret)

    def allocation(self, lease: Lease) -> Allocation:
        """Name the socket, and the secret that the service asks for."""
        return Allocation(lease.entry.entry_id, "", lease.server.key, self.place, lease.secret)

    def keep(self, lease: Lease) -> None:
        """Begin its time to live, then drop the lock."""
        try:
            self._ask_again_if_away(Renew(lease.entry.entry_id, lease.secret), Renewed)
        finally:
            lease.lock.close()

    def join(self, allocation: Allocation) -> Lease | None:
        """Hold the lock that the service passes."""
        answer = self._ask(Resume(allocation.entry_id, allocation.secret))
        if isinstance(answer, Granted):
            return self._lease(answer, needs_lock=True)
        if _is_over(answer):
            return None
        raise self._refusal(answer)

    def end(self, allocation: Allocation) -> bool:
        """Tell the service."""
        return self._end(allocation.entry_id, allocation.secret)

    def end_by_id(self, entry_id: str) -> bool:
        """Ask the service, which knows whose it is."""
        answer = self._ask(End(entry_id))
        if isinstance(answer, Released):
            return not answer.in_use
        raise self._refusal(answer)

    def snapshot(self) -> Snapshot:
        """What the service shows to all its users."""
        from bitfusion_pool.client.pools.service_snapshot import snapshot_of

        answer = self._ask(Look())
        if isinstance(answer, PoolSnapshot):
            return snapshot_of(answer, self.place, self.welcome.software)
        raise self._refusal(answer)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> ServicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _dial(self) -> tuple[Connection, Welcome]:
        """A new connection that has been welcomed."""
        connection = ServiceConnection(self.place)
        try:
            return connection, greet(connection)
        except BaseException:
            connection.close()
            raise

    def _next_position(self, seconds: float) -> Message:
        """What comes while the request waits."""
        return self._connection.receive(seconds)

    def _ask(self, message: Message) -> Message:
        """Send a message; its answer."""
        answer = self._exchange(message)
        while True:
            # somebody ended what this command had, which the answer says as well
            if not (isinstance(answer, Refused) and answer.code == refusal_codes.ENDED):
                return answer
            answer = self._receive()

    def _exchange(self, message: Message) -> Message:
        """Send a message; what comes next."""
        self._connection.send(message)
        return self._receive()

    def _receive(self) -> Message:
        """The answer to what was sent."""
        return self._connection.receive()

    def _ask_again_if_away(self, message: Message, expected: type[Message]) -> Message | None:
        """The answer, also of a service that was started anew; None where the lease is over."""
        try:
            answer = self._ask(message)
        except ServiceAway:
            self._connect()
            answer = self._ask(message)
        if isinstance(answer, expected):
            return answer
        if _is_over(answer):
            return None
        raise self._refusal(answer)

    def _end(self, entry_id: str, secret: str) -> bool:
        answer = self._ask_again_if_away(Release(entry_id, secret), Released)
        return not (isinstance(answer, Released) and answer.in_use)

    def _connect(self) -> None:
        self._connection.close()
        self._connection, self.welcome = self._dial()

    def _reconnect(self, error: ServiceAway, deadline: float, has_place: bool) -> None:
        if has_place:
            self._connection.give_up()  # perhaps granted meanwhile, which is still ours
        self._log(f"{error.answered}; this request waits for it", "WARN")
        while True:
            try:
                self._connect()
            except ServiceAway as still:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise still from None
                time.sleep(min(RETRY_S, left))
            else:
                goes_on = "goes back to its place" if has_place else "is made again"
                self._log(f"pool service at {self.place} is back, the request {goes_on}")
                return

    def _log(self, text: str, level: str = "INFO") -> None:
        LogOutput(self.emulation.stream).log(text, level)

    def _lease(self, granted: Granted, needs_lock: bool) -> Lease:
        entry = granted.entry
        lock = LeaseLock.passed(entry.entry_id, self._connection.take_descriptor())
        try:
            if not entry.shares or (lock.fd < 0 and needs_lock):
                raise nonsense(self.place, "it granted a lease without GPUs, or without its lock")
            return Lease(entry, server_of((granted.server,), entry), lock, granted.secret)
        except BaseException:
            lock.close()
            raise

    def _refusal(self, answer: Message, request: GpuRequest | None = None) -> BitfusionError:
        if isinstance(answer, Refused):
            return _error_of(answer, self.place, request)
        return nonsense(self.place, f"it answered with {answer.TYPE}")


def _is_over(answer: Message) -> bool:
    return isinstance(answer, Refused) and answer.code == refusal_codes.LEASE_OVER


def _error_of(refusal: Refused, place: str, request: GpuRequest | None) -> BitfusionError:
    from bitfusion_client.errors import NeverSatisfiable, NoGpusAvailable, OverLimit

    message, next_step = one_line(refusal.message), one_line(refusal.next_step)
    if refusal.code == refusal_codes.NEVER:
        return NeverSatisfiable(request or "", message, next_step)
    if refusal.code == refusal_codes.NOT_ENOUGH_FREE:
        return NoGpusAvailable(request or "", message, next_step)
    if refusal.code == refusal_codes.OVER_LIMIT:
        return OverLimit(request or "", message, next_step)
    if refusal.code in _OF_ONE_REQUEST:
        return ClientFailed("", message, next_step)
    return refused(place, refusal)
