"""A pool behind a service on another machine: what is different there from a service of this machine.

Nobody can look at a process over the network, so a lease lives by words: while a program runs a keeper says
them (`keeper`), while a request waits the command itself does. The first service of servers.conf that answers
is used; a lease stays with the one that gave it.
"""

from __future__ import annotations

import time

from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.connections.network_service import connect_to_first, services_of
from bitfusion_pool.client.connections.service_errors import gone, nonsense, slow
from bitfusion_pool.client.keeper import keeper
from bitfusion_pool.client.keeper.keeper import Kept
from bitfusion_pool.client.keeper.keeper_process import KeeperProcess
from bitfusion_pool.client.keeper.life_pipe import LifePipe
from bitfusion_pool.client.keeper.reach import Reach
from bitfusion_pool.client.lease import Lease, server_of
from bitfusion_pool.client.log_output import LogOutput
from bitfusion_pool.client.pools.service_pool import ServicePool
from bitfusion_pool.inventory.emulation import emulation_from, environment_settings
from bitfusion_pool.ledger.entries import RESERVED
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.messages.from_client import Alive, Cancel, Release
from bitfusion_pool.messages.from_service import Granted, Released

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.access.network_files import NetworkClient
    from bitfusion_pool.client.allocation_file import Allocation
    from bitfusion_pool.client.connections.network_connection import NetworkConnection
    from bitfusion_pool.client.connections.network_service import NetworkService
    from bitfusion_pool.ledger.entries import Holder
    from bitfusion_pool.messages.from_service import Welcome
    from bitfusion_pool.messages.message import Message

SCHEME = "tls://"  # before HOST:PORT in an allocation file, as in the setting BITFUSION_POOL
_LEAST_S = 0.05  # between two words, whatever the service says
_CANCEL_S = 1.0  # for the service to hear that a wait is over


class NetworkPool(ServicePool):
    """See `pool.Pool`.

    Args:
        client: What the files of a network client say.
        environ: The environment of the command.
        only: HOST:PORT of the service, if it must be this one.

    Raises:
        ServersUnreachable: No service takes this client.
        TokenExpired: And one of them said why.
        PoolUnreadable: ca.crt cannot be used.
    """

    _connection: NetworkConnection

    def __init__(self, client: NetworkClient, environ: Mapping[str, str], only: str = "") -> None:
        self._services = services_of(client, only)
        self._service: NetworkService | None = None
        self._early_log = LogOutput(emulation_from(environment_settings(environ)).stream)
        self._keeper: KeeperProcess | None = None
        self._is_kept = False
        self._life: LifePipe | None = None
        self._proven = clock()  # when the last word was said that was answered
        self._unanswered: float | None = None  # when the word was said that was not answered yet
        self._next_word = 0.0  # by `time.monotonic`
        super().__init__("", environ)

    @property
    def service(self) -> NetworkService:
        """The one that is used."""
        assert self._service is not None
        return self._service

    def take(
        self,
        request: GpuRequest,
        holder: Holder,
        kind: str,
        inside: str,
        on_position: Callable[[str], None],
    ) -> Lease:
        """As with any service; a wait that ends takes its request out of the queue, which outlives us."""
        try:
            return super().take(request, holder, kind, inside, on_position)
        except BaseException:
            self._leave_queue()
            raise

    def set_aside(self) -> KeeperProcess | None:
        """Leave the connection to a keeper."""
        if self._keeper is not None:
            self._keeper.start(self._connection)
            self._connection.close()
            self._is_kept = True
        return self._keeper

    def release(self, lease: Lease) -> bool:
        """Let go of the life pipe, then have the keeper release the lease."""
        lease.lock.close()
        try:
            return self._end_keeper() if self._is_kept else super().release(lease)
        finally:
            self._close_life()

    def allocation(self, lease: Lease) -> Allocation:
        """Name the service, and the secret that it asks for."""
        found = super().allocation(lease)
        return type(found)(found.entry_id, "", found.server, f"{SCHEME}{self.place}", found.secret)

    def keep(self, lease: Lease) -> None:
        """Let go of the life pipe; the reservation's time to live begins anew."""
        lease.lock.close()
        try:
            if self._is_kept:
                self._end_keeper()
            else:
                super().keep(lease)
        finally:
            self._close_life()

    # --- inside ----------------------------------------------------------------------------------------

    def _dial(self) -> tuple[NetworkConnection, Welcome]:
        self._unanswered = None
        if self._service is not None:
            return self._service.connect()
        self._service, connection, welcome = connect_to_first(self._services, self._early_log.log)
        self.place = self._service.place
        return connection, welcome

    def _exchange(self, message: Message) -> Message:
        said_at = clock()
        self._next_word = time.monotonic() + self._heartbeat_s
        answer = super()._exchange(message)
        self._proven = said_at
        return answer

    def _receive(self) -> Message:
        answer = super()._receive()
        if isinstance(answer, Alive) and self._unanswered is not None:
            # the grant that ended the wait has overtaken it
            self._unanswered = None
            return super()._receive()
        return answer

    @property
    def _heartbeat_s(self) -> float:
        return max(_LEAST_S, self.welcome.heartbeat_s)

    def _next_position(self, seconds: float) -> Message:
        """What comes while the request waits; meanwhile the service hears that somebody does.

        A new position calls for no word: in a queue that moves, all who wait would say one at every step.
        """
        now = time.monotonic()
        until = now + seconds
        while True:
            due = min(until, self._next_word)
            message = self._connection.receive_within(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if isinstance(message, Alive):
                self._proven, self._unanswered = self._unanswered or self._proven, None
            elif message is not None:
                return message
            elif now >= until:
                raise slow(self.place, seconds)
            if now >= self._next_word:
                if self._unanswered is not None:
                    raise slow(self.place, self._heartbeat_s)
                self._unanswered, self._next_word = clock(), now + self._heartbeat_s
                self._connection.send(Alive())

    def _leave_queue(self) -> None:
        """Best done by a word: without one the request keeps its place for a while."""
        try:
            self._connection.send(Cancel())
            until = time.monotonic() + _CANCEL_S
            while (left := until - time.monotonic()) > 0:
                message = self._connection.receive_within(left)
                if isinstance(message, Granted):
                    # it was faster
                    self._connection.send(Release(message.entry.entry_id, message.secret))
                elif isinstance(message, Released) or message is None:
                    return
        except BitfusionError:
            pass  # the service ends it after a while

    def _lease(self, granted: Granted, needs_lock: bool) -> Lease:
        entry, welcome = granted.entry, self.welcome
        if not entry.shares:
            raise nonsense(self.place, "it granted a lease without GPUs")
        server = server_of((granted.server,), entry)
        if not all(device.simulated for device in server.devices if device.number in _numbers(granted)):
            raise nonsense(self.place, "it granted a real GPU, which nobody can use over the network")
        if not needs_lock:
            return Lease(entry, server, LeaseLock.none(entry.entry_id), granted.secret)
        self._life = LifePipe(entry.entry_id)
        reserved = entry.kind == RESERVED
        kept = Kept(
            self.service, entry.entry_id, granted.secret, reserved, self._heartbeat_s, not welcome.route
        )
        silent_s = max(welcome.silent_s, self.emulation.auto_release) if reserved else welcome.silent_s
        self._keeper = KeeperProcess(kept, self._life, Reach(welcome.closed_s, silent_s, self._proven))
        return Lease(entry, server, self._life.lock, granted.secret)

    def _close_life(self) -> None:
        """Let go of the lease's pipe; a keeper has an end of its own."""
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def _end_keeper(self) -> bool:
        assert self._keeper is not None
        answer = self._keeper.end()
        if answer in (keeper.DONE.decode(), keeper.USED.decode()):
            return answer == keeper.DONE.decode()
        raise gone(self.place, answer)


def _numbers(granted: Granted) -> set[int]:
    return {share.number for share in granted.entry.shares}
