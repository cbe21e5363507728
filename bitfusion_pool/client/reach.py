"""How long a program may go on whose pool is out of reach. Pure.

Times are passed in, by a clock that counts the machine's sleep, too. The service counts from the last word it
got, and from when it saw the connection end. Neither can be before the client *sent* the last message that
was answered, so everything here counts from that moment: whatever the network delays, the program is gone
before its GPUs are given to others. The one exception is a network that ends the connection at the service's
side and lets the client believe that it is open (docs/decisions/0064-lease-over-the-network.md).
"""

from __future__ import annotations

# of the service's two times: when the program is told to end, and when it is killed
_TOLD = {"closed": 0.8, "silent": 0.75}
_KILLED = {"closed": 0.9, "silent": 0.85}


class Reach:
    """What a client knows of its service.

    Attributes:
        closed_s: How long a lease outlives its connection.
        silent_s: How long it outlives the last word of its client.
        proven: When the last message was sent that the service has answered.
        closed: Whether the lease's connection has ended, without the service's word that it ends itself.
        limit: When the service may free the lease, whatever the rest says; see `perhaps_resumed`.
    """

    __slots__ = ("closed", "closed_s", "limit", "proven", "silent_s")

    def __init__(
        self,
        closed_s: float,
        silent_s: float,
        proven: float,
        closed: bool = False,
        limit: float | None = None,
    ) -> None:
        self.closed_s = closed_s
        self.silent_s = silent_s
        self.proven = proven
        self.closed = closed
        self.limit = limit

    def answered(self, sent_at: float) -> None:
        """The service has answered what was sent then, on a connection that is the lease's and open."""
        self.proven = max(self.proven, sent_at)
        self.closed = False
        self.limit = None

    def lost_connection(self) -> None:
        """The lease's connection has ended, and the service said nothing of its own end."""
        self.closed = True

    def perhaps_resumed(self, sent_at: float) -> None:
        """A connection has ended on which the lease was asked for then, without an answer.

        The service may have taken it for the lease's, and count from its end.
        """
        limit = sent_at + self.closed_s
        self.limit = limit if self.limit is None else min(self.limit, limit)

    @property
    def ends_at(self) -> float:
        """When the program is told to end."""
        return self._at(_TOLD)

    @property
    def killed_at(self) -> float:
        """When it is killed, if it has not ended."""
        return self._at(_KILLED)

    def _at(self, part: dict[str, float]) -> float:
        ends = [self.proven + part["silent"] * self.silent_s]
        if self.closed:
            ends.append(self.proven + part["closed"] * self.closed_s)
        if self.limit is not None:
            ends.append(self.limit - (1 - part["closed"]) * self.closed_s)
        return min(ends)
