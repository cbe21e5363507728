"""Which connection goes where there are too many, and whose turn it is. Pure; for every port of this project.

To open a connection costs nothing, and nobody can be told apart who has asked nothing yet. But addresses can:
so a crowd pushes out its own, and who has few connections keeps them. Where all come from one address, from
behind a NAT as it were, the oldest goes, which has had the most time to ask.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Generic, TypeVar

TOO_MANY, TOO_SLOW = "too_many", "too_slow"
"""Why a connection is sent away, in metrics and logs."""
C = TypeVar("C", bound=Hashable)


def source_of(host: str) -> str:
    """Which addresses count as one source: an IPv4 address, or 64 bits of an IPv6 address."""
    if ":" not in host:
        return host
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or ip_network((address, 64), strict=False))


class Crowd(Generic[C]):
    """Connections of one kind by where they come from, `most` of them, and `most_of_source` of one source."""

    def __init__(self, most: int, most_of_source: int | None = None) -> None:
        self.most = most
        self._most_of_source = most if most_of_source is None else most_of_source
        self._sources: dict[str, dict[C, None]] = {}  # the oldest of each source first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[C]:
        return (one for ones in self._sources.values() for one in ones)

    def enter(self, one: C, source: str) -> C | None:
        """Take it in as its source's newest; returns the one that has left for it, and is to be closed."""
        ones = self._sources.setdefault(source, {})
        ones[one] = None
        self._count += 1
        if len(ones) > self._most_of_source:
            return self._oldest(source)
        return self.give_up_one() if self._count > self.most else None

    def leave(self, one: C, source: str) -> None:
        """It has ended, or is of another kind now; nothing if it is not here."""
        ones = self._sources.get(source, {})
        if one in ones:
            del ones[one]
            self._count -= 1
            if not ones:
                del self._sources[source]

    @property
    def largest_source(self) -> str | None:
        """Whose oldest goes next; None where nobody is."""
        return max(self._sources, key=lambda source: len(self._sources[source]), default=None)

    def give_up_one(self) -> C | None:
        """The one that goes next; it has left."""
        source = self.largest_source
        return None if source is None else self._oldest(source)

    def next_turn(self) -> C | None:
        """The oldest of the source whose turn it is, which then waits until all others had theirs."""
        source = next(iter(self._sources), None)
        if source is None:
            return None
        one = self._oldest(source)
        if source in self._sources:
            self._sources[source] = self._sources.pop(source)
        return one

    def _oldest(self, source: str) -> C:
        one = next(iter(self._sources[source]))
        self.leave(one, source)
        return one
