"""How many connections each user has, with bounds. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from bitfusion_pool.messages.refusal_codes import TOO_MANY
from bitfusion_pool.service.refusal import Refusal

K = TypeVar("K", int, str)


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
        _take_away(self._counts, uid)


class Strangers:
    """The connections from other machines whose clients have shown no token yet, by where they come from."""

    def __init__(self, most_of_address: int, most: int) -> None:
        self._most_of_address = most_of_address
        self._most = most
        self._counts: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more, unless there are too many."""
        if self._counts[address] >= self._most_of_address or self._counts.total() >= self._most:
            return False
        self._counts[address] += 1
        return True

    def leave(self, address: str) -> None:
        """One has shown its token, or has ended."""
        _take_away(self._counts, address)


def _take_away(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
