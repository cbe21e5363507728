"""Turns by namespace: what one of them has thousands of holds up none of the others.

For every list that is worked off a few at a time, or at so many a second, and that people fill who must not
cost each other anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A queue with a line for each namespace, of which the one is next whose turn was longest ago.

    It does not lock: for one thread, or under its owner's lock.

    Args:
        most: In one line; the oldest of it is dropped for one more. None: no bound.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._lines: dict[str, deque[T]] = {}  # in the order of their turns; none is empty

    def append(self, namespace: str, item: T) -> None:
        """Put it at the end of its namespace's line."""
        line = self._lines.get(namespace)
        if line is None:
            line = self._lines[namespace] = deque(maxlen=self._most)
        line.append(item)

    def popleft(self) -> T:
        """The next one. Raises LookupError if there is none."""
        if not self._lines:
            raise LookupError("nothing waits")
        namespace = next(iter(self._lines))
        line = self._lines.pop(namespace)
        item = line.popleft()
        if line:
            self._lines[namespace] = line
        return item

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)


def by_turns(items: Iterable[T], namespace: Callable[[T], str]) -> Iterator[T]:
    """The first of each namespace, then the second of each, and so on; otherwise in their own order."""
    turns: Turns[T] = Turns()
    for item in items:
        turns.append(namespace(item), item)
    while turns:
        yield turns.popleft()
