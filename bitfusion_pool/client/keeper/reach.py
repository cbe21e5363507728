"""How long a program may go on whose pool is out of reach. Pure.

Times are passed in, by a clock that counts the machine's sleep, too. The service counts from the last word
it got, and from when it saw that this machine has ended the connection in order. Neither can be before the
client *sent* the last message that was answered, so everything here counts from that moment: whatever the
network delays, the program is gone before its GPUs are given to others. That a network has ended a connection
says nothing to either side (docs/decisions/0092-who-ended-a-connection.md).
"""

from __future__ import annotations

# of the service's two times: when the program is told to end, and when it is killed
_TOLD = {"closed": 0.8, "silent": 0.75}
_KILLED = {"closed": 0.9, "silent": 0.85}


class Reach:
    """What a client knows of its service.

    Attributes:
        closed_s: How long a lease outlives its connection where its client has ended that.
        silent_s: How long it outlives the last word of its client.
        proven: When the last message was sent that the service has answered.
        closed: Whether this machine has ended the lease's connection in order, or so the service may believe.
    """

    __slots__ = ("closed", "closed_s", "proven", "silent_s")

    def __init__(self, closed_s: float, silent_s: float, proven: float, closed: bool = False) -> None:
        self.closed_s = closed_s
        self.silent_s = silent_s
        self.proven = proven
        self.closed = closed

    def answered(self, sent_at: float) -> None:
        """The service has answered what was sent then, on a connection that is the lease's and open."""
        self.proven = max(self.proven, sent_at)
        self.closed = False

    def hung_up(self) -> None:
        """A connection was ended in order that the service may take for the lease's."""
        self.closed = True

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
        return min(ends)
