"""How many TLS handshakes of one address begin each second; others wait for their turn. Pure.

A handshake costs the thread that serves everybody about half a millisecond, and whoever asks for it nothing.
"""

from __future__ import annotations

_AT_ONCE_S = 2.0  # of so many seconds after a pause: the service was away, and a machine's clients come back
_MOST_ADDRESSES = 4096


class HandshakePace:
    """Gives each connection the time at which its handshake may begin.

    Args:
        per_second: Handshakes of one address each second, in the long run.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._due: dict[str, float] = {}  # of the last one, had they come evenly

    def take_turn(self, address: str, now: float, longest_s: float) -> float | None:
        """The seconds until a new connection has its turn; None, and no turn is taken: it would be too late.

        Args:
            address: From `tls_listener.source_of`.
            now: By a monotonic clock.
            longest_s: So long may it wait.
        """
        if len(self._due) >= _MOST_ADDRESSES:
            self._forget_idle(now)
        due = max(now - _AT_ONCE_S, self._due.get(address, 0.0)) + self._interval
        if due - now > longest_s:
            return None
        self._due[address] = due
        return max(0.0, due - now)

    def _forget_idle(self, now: float) -> None:
        limit = now - _AT_ONCE_S
        self._due = {address: due for address, due in self._due.items() if due > limit}
        if len(self._due) >= _MOST_ADDRESSES:  # so many at once: what they take is bounded otherwise
            self._due.clear()
