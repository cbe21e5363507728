"""Connections that are not let in yet: how many there may be, what they may cost, and what is said of them.

Anybody who reaches the port may open as many as they like, and is told nothing; the one client must get in
beside them, and its program must not wait for them.
"""

from __future__ import annotations

import socket
import ssl
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream.handshake import Handshake, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_pods.stream.greeting import Greeting

MOST = 32
"""At once. One more ends the oldest of them, which has had more time than a client needs."""
A_TURN = 0.01
"""Seconds that go to them before it is the program's turn again; the one that is just served is served."""
LINES, LINES_EVERY = 10, 10.0
"""So many refusals are told in so many seconds; of the others how many there were."""


class Strangers:
    """Those of one agent.

    Args:
        context: From `tls.context`.
        greet: As `Handshake` has it.
        let_in: Gets each that has shown the client's key, with its greeting.
        others: The descriptors that the agent polls, with what to call.
        log: Gets one line for each thing that happens.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        greet: Callable[[Greeting | None], Greeting],
        let_in: Callable[[Handshake, Greeting], None],
        others: dict[int, Callable[[], object]],
        log: Callable[[str], None],
    ) -> None:
        self._context = context
        self._greet = greet
        self._let_in = let_in
        self._others = others
        self._log = log
        self._handshakes: dict[int, Handshake] = {}  # by descriptor, the oldest first
        self._spent = 0.0
        self._said = self._not_said = 0
        self._say_again_at = 0.0

    @property
    def limits(self) -> list[float]:
        """When each of them must be done."""
        return [handshake.until for handshake in self._handshakes.values()]

    def begin_turn(self) -> None:
        """Close those that take too long; what the others may cost is counted anew."""
        self._spent, now = 0.0, time.monotonic()
        for fd, handshake in list(self._handshakes.items()):
            if now >= handshake.until:
                self._refuse(fd, "it took too long")

    def accept(self, listener: socket.socket) -> None:
        """Take in whoever waits first."""
        if self._spent >= A_TURN:
            return
        began = time.monotonic()
        try:
            raw, _ = listener.accept()
        except OSError:
            return
        if len(self._handshakes) >= MOST:
            self._refuse(next(iter(self._handshakes)), "there are too many connections, and it was slow")
        try:
            handshake = Handshake(raw, self._context, self._greet, server=True)
        except Refused as refused:
            self.tell(str(refused))
            return
        fd = handshake.connection.fileno()
        self._handshakes[fd] = handshake
        self._others[fd] = lambda: self._go_on(fd, handshake)
        self._spent += time.monotonic() - began

    def _go_on(self, fd: int, handshake: Handshake) -> None:
        if self._spent >= A_TURN:
            return  # `poll` will name it again
        began = time.monotonic()
        try:
            theirs = handshake.go_on()
        except Refused as refused:
            self._refuse(fd, str(refused))
        else:
            if theirs is not None:
                del self._others[fd], self._handshakes[fd]
                self._let_in(handshake, theirs)
        self._spent += time.monotonic() - began

    def _refuse(self, fd: int, why: str) -> None:
        del self._others[fd]
        self._handshakes.pop(fd).close()
        self.tell(why)

    def tell(self, why: str) -> None:
        """A connection was refused."""
        now = time.monotonic()
        if now >= self._say_again_at:
            if self._not_said:
                self._log(f"refused {self._not_said} more connections")
            self._said, self._not_said, self._say_again_at = 0, 0, now + LINES_EVERY
        if self._said < LINES:
            self._said += 1
            self._log(f"refused a connection: {why}")
        else:
            self._not_said += 1
