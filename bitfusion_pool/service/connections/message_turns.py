"""MessageTurns: one message of each user, then one of the next, and no more of one than its rate allows.

However much one user sends, another waits for at most one message of each user in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from bitfusion_pool.service.connections.client_connection import ClientConnection

_log = logging.getLogger(__name__)
_MOST_IDLE_USERS = 1000


class _User:
    """The connections of one user that have lines, and how many messages it may send at once."""

    __slots__ = ("allowance", "counted_at", "has_turn", "ready")

    def __init__(self, allowance: float, now: float) -> None:
        self.ready: deque[ClientConnection] = deque()
        self.allowance = allowance
        self.counted_at = now
        self.has_turn = False  # in the order, or will be


class MessageTurns:
    """Gives each user its turn, within the event loop.

    Attributes:
        per_second: Messages of one user each second, in the long run.
        at_once: How many it may send at once after a pause.
    """

    def __init__(self, per_second: float, at_once: float, loop: asyncio.AbstractEventLoop) -> None:
        self.per_second = per_second
        self.at_once = at_once
        self._loop = loop
        self._users: dict[int | str, _User] = {}
        self._order: deque[_User] = deque()
        self._is_running = False

    def add(self, who: int | str, connection: ClientConnection) -> None:
        """A connection of this user has lines now, and had none before.

        `who` is a user's number, or the address of a client that is not known yet.
        """
        user = self._users.get(who)
        if user is None:
            self._forget_idle()
            user = self._users[who] = _User(self.at_once, self._loop.time())
        user.ready.append(connection)
        if not user.has_turn:
            user.has_turn = True
            self._enter(user)

    def _enter(self, user: _User) -> None:
        self._order.append(user)
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        # one message a round of the loop, which looks at all sockets in between
        user = self._order.popleft()
        missing = self._take(user)
        if missing:
            self._loop.call_later(missing, self._enter, user)
        else:
            self._handle_one(user)
            if user.ready:
                self._order.append(user)
            else:
                user.has_turn = False
        self._is_running = bool(self._order)
        if self._order:
            self._loop.call_soon(self._next)

    def _handle_one(self, user: _User) -> None:
        connection = user.ready.popleft()
        try:
            has_more = connection.handle_one()
        except Exception:  # a bug that one client has found must not end the service for others
            _log.exception("a message could not be handled")
            connection.close()
            return
        if has_more:
            user.ready.append(connection)

    def _take(self, user: _User) -> float:
        """Take one message of the allowance; returns 0, or the seconds until there is one."""
        now = self._loop.time()
        grown = user.allowance + (now - user.counted_at) * self.per_second
        user.allowance, user.counted_at = min(self.at_once, grown), now
        if user.allowance < 1:
            return (1 - user.allowance) / self.per_second
        user.allowance -= 1
        return 0.0

    def _forget_idle(self) -> None:
        if len(self._users) < _MOST_IDLE_USERS:
            return
        now = self._loop.time()
        for who, user in list(self._users.items()):
            full = user.allowance + (now - user.counted_at) * self.per_second >= self.at_once
            if full and not user.has_turn:
                del self._users[who]
