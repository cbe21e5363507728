"""How many connections each user has, and how many nobody knows yet, with bounds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from bitfusion_client.listening.crowd import Crowd
from bitfusion_pool.messages.refusal_codes import TOO_MANY
from bitfusion_pool.service.refusal import Refusal

CROWDED = "there are too many connections that show no token, and this one is the oldest"


class ConnectionCounts:
    """The connections of known users, over the socket and the network together."""

    def __init__(self, most_of_user: int, most: int) -> None:
        self._most_of_user = most_of_user
        self._most = most
        self._counts: Counter[int] = Counter()

    def enter(self, uid: int) -> None:
        """Count one more. Raises Refusal."""
        if self._counts[uid] >= self._most_of_user:
            raise Refusal(
                TOO_MANY,
                f"one user may have {self._most_of_user} connections to this pool, and you have as many",
                "end some of your programs that hold GPUs or wait for them",
            )
        if self._counts.total() >= self._most:
            raise Refusal(
                TOO_MANY,
                f"this pool has {self._most} connections, and takes no more",
                "try again in a moment",
            )
        self._counts[uid] += 1

    def leave(self, uid: int) -> None:
        """One has ended."""
        self._counts[uid] -= 1
        if self._counts[uid] <= 0:
            del self._counts[uid]


class Stranger:
    """A connection from another machine whose client has shown no token yet.

    Attributes:
        source: Where it comes from, see `source_of`.
        send_away: Closes it; set by whoever has it at the time.
    """

    def __init__(self, source: str, send_away: Callable[[], None]) -> None:
        self.source = source
        self.send_away = send_away


class Strangers:
    """All of these, bounded: one too many sends the oldest away, so that a crowd of them keeps nobody out."""

    def __init__(self, most_of_address: int, most: int) -> None:
        self._crowd: Crowd[Stranger] = Crowd(most, most_of_address)

    def enter(self, stranger: Stranger) -> None:
        """Take in one more."""
        gone = self._crowd.enter(stranger, stranger.source)
        if gone is not None:
            gone.send_away()

    def leave(self, stranger: Stranger) -> None:
        """It has shown its token, or has ended."""
        self._crowd.leave(stranger, stranger.source)

    def make_room(self) -> bool:
        """Send one away, where descriptors have run out; whether there was one."""
        gone = self._crowd.give_up_one()
        if gone is not None:
            gone.send_away()
        return gone is not None
