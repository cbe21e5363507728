"""A reservation that a client on another machine uses: the service holds its lock for it.

The reservation's time to live is renewed at the client's words, so that it outlives a service that is started
anew; the lock keeps one that was given back meanwhile until its last user has ended.
"""

from __future__ import annotations

import os

from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.liveness import clock


class ReservationUse:
    """By one connection. Closed by whoever made it.

    Args:
        ledger: The ledger.
        entry_id: The reservation.
        fd: Its lock, held together with its other users; belongs to this object.
        ttl_s: How long it shall live after a word of the client.
        every_s: How often it is renewed at most.
    """

    def __init__(self, ledger: Ledger, entry_id: str, fd: int, ttl_s: float, every_s: float) -> None:
        self._ledger = ledger
        self._entry_id = entry_id
        self._fd = fd
        self._ttl_s = ttl_s
        self._every_s = every_s
        self._renewed_at = float("-inf")

    def heard(self) -> None:
        """The client has said something. Raises PoolUnreadable."""
        now = clock()
        if now < self._renewed_at + self._every_s:
            return
        self._renewed_at = now
        self._ledger.renew(self._entry_id, self._ttl_s)

    def over_at(self, heard_at: float) -> float:
        """When its program has ended if the client, last heard then, is not heard again."""
        return heard_at + self._ttl_s

    def close(self) -> None:
        """The client uses it no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
