"""New connections for a keeper that has lost its own: one at a time, each made in a thread of its own.

Names are looked up without a time limit, and a keeper must not be kept from its other tasks.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import BitfusionError, PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.ledger.liveness import clock

if TYPE_CHECKING:
    from bitfusion_pool.client.connections.network_connection import NetworkConnection
    from bitfusion_pool.client.connections.network_service import NetworkService
    from bitfusion_pool.messages.message import Message


@dataclass(frozen=True, slots=True)
class Dialed:
    """What came of it.

    Attributes:
        connection: None: there was none.
        sent_at: When the message was sent on it, by `clock`; None: it was not.
        answer: To that message, or why there is none.
    """

    connection: NetworkConnection | None
    sent_at: float | None
    answer: Message | BitfusionError


class Redial:
    """Dials one service. For `poll` it is readable once `take` has something.

    Attributes:
        is_under_way: Whether a dial has been begun that was not taken.
        next_at: When the next one may be begun, by `clock`.
    """

    def __init__(self, service: NetworkService, pause_s: float) -> None:
        self._service = service
        self._pause_s = pause_s
        self._readable, self._done = os.pipe()
        self._dialed: Dialed | None = None
        self.is_under_way = False
        self.next_at = clock()

    def fileno(self) -> int:
        """See the class."""
        return self._readable

    def begin(self, wanted: Message) -> None:
        """Connect, say this, and wait for the answer; returns at once."""
        import _thread

        self.is_under_way = True
        _thread.start_new_thread(self._dial, (wanted,))

    def take(self) -> Dialed | None:
        """What came of it; None: nothing yet. The next one may be begun after a pause."""
        dialed, self._dialed = self._dialed, None
        if dialed is not None:
            os.read(self._readable, 1)
            self.is_under_way = False
            self.next_at = clock() + self._pause_s
        return dialed

    def _dial(self, wanted: Message) -> None:
        connection, sent_at = None, None
        answer: Message | BitfusionError
        try:
            connection, _ = self._service.connect()
            sent_at = clock()
            connection.send(wanted)
            answer = connection.receive()
        except BitfusionError as error:
            answer = error
        except BaseException as error:  # a bug, which must not end the dialing
            answer = PoolUnreadable("", f"unexpected {type(error).__name__}: {error}")
        self._dialed = Dialed(connection, sent_at, answer)
        os.write(self._done, b"x")
