"""How a lease over the network lives: by words, since nobody can look at a process on another machine.

While a program runs a keeper says them (`keeper`), while a request waits the command itself does. The first
service of servers.conf that answers is used; a lease stays with the one that gave it.
"""

from __future__ import annotations

import time

from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_VARIABLE
from bitfusion_pool.client.connections.network_service import connect_to_first, services_of
from bitfusion_pool.client.connections.service_errors import gone, nonsense, slow
from bitfusion_pool.client.keeper.keeper import Kept
from bitfusion_pool.client.keeper.keeper_process import KeeperProcess
from bitfusion_pool.client.keeper.life_pipe import LifePipe
from bitfusion_pool.client.keeper.reach import Reach
from bitfusion_pool.client.keeper.wrapper_link import DONE, USED
from bitfusion_pool.client.pools.pool import Lease, server_of
from bitfusion_pool.client.pools.reached_names import ReachedNames
from bitfusion_pool.inventory.emulation import emulation_from, environment_settings
from bitfusion_pool.ledger.entries import RESERVED
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.messages.from_client import Alive, Cancel, Release
from bitfusion_pool.messages.from_service import Granted, Released, Welcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.access.network_files import NetworkClient
    from bitfusion_pool.messages.message import Message

SCHEME = "tls://"  # before HOST:PORT in an allocation file, as in the setting BITFUSION_POOL
_LEAST_S = 0.05  # between two words, whatever the service says
_CANCEL_S = 1.0  # for the service to hear that a wait is over


class LifeByWords:
    """Of one command: its conversation with the service, and what keeps its lease. For `ServicePool`.

    Args:
        client: What the files of a network client say.
        environ: The environment of the command.
        only: HOST:PORT of the service, if it must be this one.

    Attributes:
        place: HOST:PORT of the service that is used.
        address: The same in an allocation file.
        connection: With that service.
        welcome: What it said of itself there.

    Raises:
        ServersUnreachable: No service takes this client.
        TokenExpired: And one of them said why.
        PoolUnreadable: ca.crt cannot be used.
    """

    def __init__(self, client: NetworkClient, environ: Mapping[str, str], only: str = "") -> None:
        log = LogOutput(emulation_from(environment_settings(environ)).stream)
        self._service, self.connection, welcome = connect_to_first(services_of(client, only), log.log)
        self._names = ReachedNames(self._service.address)
        self.welcome = self._welcomed(welcome)
        self.place = self._service.place
        self.address = f"{SCHEME}{self.place}"
        self._state_file = environ.get(FILE_VARIABLE, "")
        self._keeper: KeeperProcess | None = None
        self._is_kept = False
        self._pipe: LifePipe | None = None
        self._proven = clock()  # when the last word was said that was answered
        self._unanswered: float | None = None  # when the word was said that was not answered yet
        self._next_word = 0.0  # by `time.monotonic`

    def connect(self) -> None:
        """Connect anew, and be welcomed."""
        self._unanswered = None
        self.connection, welcome = self._service.connect()
        self.welcome = self._welcomed(welcome)

    def exchange(self, message: Message) -> Message:
        """Send a message; what comes next."""
        said_at = clock()
        self._next_word = time.monotonic() + self._heartbeat_s
        self.connection.send(self._names.to_service(message))
        answer = self.receive()
        self._proven = said_at
        return answer

    def receive(self) -> Message:
        """The answer to what was sent."""
        answer = self.connection.receive()
        if isinstance(answer, Alive) and self._unanswered is not None:
            # the grant that ended the wait has overtaken it
            self._unanswered = None
            answer = self.connection.receive()
        return self._names.from_service(answer)

    def next_position(self, seconds: float) -> Message:
        """What comes while the request waits; meanwhile the service hears that somebody does.

        A new position calls for no word: in a queue that moves, all who wait would say one at every step.
        """
        now = time.monotonic()
        until = now + seconds
        while True:
            due = min(until, self._next_word)
            message = self.connection.receive_within(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if isinstance(message, Alive):
                self._proven, self._unanswered = self._unanswered or self._proven, None
            elif message is not None:
                return self._names.from_service(message)
            elif now >= until:
                raise slow(self.place, seconds)
            if now >= self._next_word:
                if self._unanswered is not None:
                    raise slow(self.place, self._heartbeat_s)
                self._unanswered, self._next_word = clock(), now + self._heartbeat_s
                self.connection.send(Alive())

    def tell(self, message: Message) -> bool:
        """Say what has no answer, while the request waits; afterwards the keeper does. Raises ServiceAway."""
        self.connection.send(message)
        return True

    def leave_queue(self) -> None:
        """A wait has ended without a lease. Best told: the request outlives this connection for a while."""
        try:
            self.connection.send(Cancel())
            until = time.monotonic() + _CANCEL_S
            while (left := until - time.monotonic()) > 0:
                message = self.connection.receive_within(left)
                if isinstance(message, Granted):
                    # it was faster
                    self.connection.send(Release(message.entry.entry_id, message.secret))
                elif isinstance(message, Released) or message is None:
                    return
        except BitfusionError:
            pass  # the service ends it after a while

    def lease(self, granted: Granted, needs_lock: bool, auto_release_s: float) -> Lease:
        """What was granted. `needs_lock`: a program uses it; a reservation that is used lives that long."""
        entry, welcome = granted.entry, self.welcome
        if not entry.shares:
            raise nonsense(self.place, "it granted a lease without GPUs")
        server = server_of((granted.server,), entry)
        numbers = {share.number for share in entry.shares}
        if not all(device.simulated for device in server.devices if device.number in numbers):
            raise nonsense(self.place, "it granted a real GPU, which nobody can use over the network")
        if not needs_lock:
            return Lease(entry, server, LeaseLock.none(entry.entry_id), granted.secret)
        self._pipe = LifePipe(entry.entry_id)
        reserved = entry.kind == RESERVED
        kept = Kept(
            *(self._service, entry.entry_id, granted.secret, reserved, self._heartbeat_s),
            *(not welcome.route, self._state_file),
        )
        silent_s = max(welcome.silent_s, auto_release_s) if reserved else welcome.silent_s
        self._keeper = KeeperProcess(kept, self._pipe, Reach(welcome.closed_s, silent_s, self._proven))
        return Lease(entry, server, self._pipe.lock, granted.secret)

    def set_aside(self) -> KeeperProcess | None:
        """A program runs from now on: leave the connection to a keeper."""
        if self._keeper is not None:
            self._keeper.start(self.connection)
            self.connection.close()
            self._is_kept = True
        return self._keeper

    def end_by_keeper(self, lease: Lease) -> bool | None:
        """Have the keeper end the hold of a lease; whether its GPUs are free now. None: none keeps it."""
        lease.lock.close()
        if not self._is_kept:
            return None
        assert self._keeper is not None
        answer = self._keeper.end()
        if answer in (DONE.decode(), USED.decode()):
            return answer == DONE.decode()
        raise gone(self.place, answer)

    def let_go(self, lease: Lease) -> None:
        """Close the life pipe; a keeper has an end of its own."""
        lease.lock.close()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()

    def _welcomed(self, welcome: Welcome) -> Welcome:
        shown = self._names.from_service(welcome)
        assert isinstance(shown, Welcome)
        return shown

    @property
    def _heartbeat_s(self) -> float:
        return max(_LEAST_S, self.welcome.heartbeat_s)
