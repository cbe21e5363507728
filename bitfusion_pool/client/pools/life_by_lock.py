"""How a lease of this machine's pool lives: by the lock that its service passes over the unix socket."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.connections.connection import greet
from bitfusion_pool.client.connections.service_connection import ServiceConnection
from bitfusion_pool.client.connections.service_errors import nonsense
from bitfusion_pool.client.pools.pool import Lease, server_of
from bitfusion_pool.ledger.files.lease_lock import LeaseLock

if TYPE_CHECKING:
    from bitfusion_pool.client.connections.one_way import OneWay
    from bitfusion_pool.messages.from_service import Granted
    from bitfusion_pool.messages.message import Message


class LifeByLock:
    """See `life_by_words.LifeByWords`, which has the same methods: a lock needs few of them.

    Args:
        place: The service's socket.

    Raises:
        ServiceAway: Nobody answers there.
        PoolUnreadable: The service does not take this client, or is none.
    """

    def __init__(self, place: str) -> None:
        self.place = self.address = place
        self._aside: OneWay | None = None  # a connection for what is told once the service was started anew
        self.connect()

    def connect(self) -> None:
        """Connect, and be welcomed."""
        self._aside = None
        connection = ServiceConnection(self.place)
        try:
            self.welcome = greet(connection)
        except BaseException:
            connection.close()
            raise
        self.connection = connection

    def exchange(self, message: Message) -> Message:
        """Send a message; what comes next."""
        self.connection.send(message)
        return self.receive()

    def receive(self) -> Message:
        """The answer to what was sent."""
        return self.connection.receive()

    def next_position(self, seconds: float) -> Message:
        """What comes while the request waits."""
        return self.connection.receive(seconds)

    def tell(self, message: Message) -> bool:
        """Say what has no answer, without waiting; also to a service that was started anew meanwhile."""
        if self._aside is None and self.connection.say(message):
            return True
        if self._aside is None:
            from bitfusion_pool.client.connections.one_way import OneWay

            self._aside = OneWay(self.place)
        return self._aside.say(message)

    def lease(self, granted: Granted, needs_lock: bool, _: float) -> Lease:
        """With the lock that came with the grant."""
        entry = granted.entry
        lock = LeaseLock.passed(entry.entry_id, self.connection.take_descriptor())
        try:
            if not entry.shares or (lock.fd < 0 and needs_lock):
                raise nonsense(self.place, "it granted a lease without GPUs, or without its lock")
            return Lease(entry, server_of((granted.server,), entry), lock, granted.secret)
        except BaseException:
            lock.close()
            raise

    def let_go(self, lease: Lease) -> None:
        """Drop the lock."""
        lease.lock.close()

    def _nothing(self, *_: object) -> None:
        """The connection is kept: its end tells the service that this command has ended."""

    leave_queue = set_aside = end_by_keeper = _nothing
