"""In which order a ledger's queue is served, strictly as requests came or fairly; each one's place in it."""

from __future__ import annotations

from bitfusion_client.command.client_output import MOST_NAMED
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.entries import WAITING
from bitfusion_pool.ledger.queue.fair_order import Present, due_time
from bitfusion_pool.ledger.queue.queue_position import QueuePosition
from bitfusion_pool.ledger.storage.database import read_meta, write_meta
from bitfusion_pool.ledger.storage.entry_table import (
    count_waiting,
    due_columns,
    entries_by_number,
    make_due_times,
    waiting_before,
    waiting_by_due_time,
    waiting_entries,
    write_due_time,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from bitfusion_pool.ledger.entries import Entry

_AT_ONCE = 16
_ORDER, _FAIR, _STRICT = "queue order", "fair", "strict"  # in the table `meta`; without it strict


class QueueOrder:
    """The order of one queue: first come, first served; `FairOrder` has another one."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, entry_id: str) -> None:
        """Give a new entry its place, within the transaction that wrote it. Here its number is its place."""

    def entries(self) -> Iterator[Entry]:
        """Those that wait, as they are to be served. The caller may change the table meanwhile."""
        return waiting_entries(self._db)

    def sorted(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that wait of all the ledger's entries, which were just read, in this order."""
        return [entry for entry in entries if entry.state == WAITING]

    def place(self, entry: Entry) -> QueuePosition:
        """The place of one that waits, without who holds the GPUs and why it waits."""
        wanted = set(entry.servers)
        competing = [
            (possible, count, earlier)
            for possible, count, earlier in count_waiting(self._db, entry.number)
            if wanted.intersection(possible.split())
        ]
        possible = [one for one, _, _ in competing]
        position = 1 + sum(earlier for _, _, earlier in competing)
        length = max(position, sum(count for _, count, _ in competing))
        before = waiting_before(self._db, possible, entry.number, MOST_NAMED)
        if position > MOST_NAMED + 1:
            directly_before = waiting_before(self._db, possible, entry.number, 1, last=True)
        else:
            directly_before = before[-1:]
        return QueuePosition(position, length, tuple(before), tuple(directly_before))


class _Group:
    """Those that wait for one set of servers: what is before the next of them, in the order of the queue."""

    __slots__ = ("count", "first", "last", "latest", "rivals", "servers")

    def __init__(self, possible: str) -> None:
        self.servers = frozenset(possible.split())
        self.rivals: list[_Group] = []  # the groups that compete with it, itself included
        self.count = 0
        self.first: tuple[int, ...] = ()
        self.last: tuple[int, ...] = ()
        self.latest = 0

    def pass_by(self, number: int) -> None:
        """The next in the queue competes with this group."""
        self.count += 1
        self.last = (number,)
        self.latest = max(self.latest, number)
        if len(self.first) < MOST_NAMED:
            self.first = (*self.first, number)


class FairOrder(QueueOrder):
    """See `fair_order`. Computes the places of all at once, and anew when the ledger has changed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._seen: object = None
        self._found: dict[int, tuple[_Group, int, tuple[int, ...], tuple[int, ...], bool]] = {}
        make_due_times(db)

    def add(self, entry_id: str) -> None:
        """See `QueueOrder`."""
        new = None
        present = []
        for number, found_id, owner, came, due in due_columns(self._db):
            if found_id == entry_id:
                new = number, owner, came
            else:
                present.append(Present(owner, came, due))
        if new is not None:
            number, owner, came = new
            write_due_time(self._db, number, due_time(present, owner, came))

    def entries(self) -> Iterator[Entry]:
        """See `QueueOrder`."""
        self._update()
        order = list(self._found)
        for begin in range(0, len(order), _AT_ONCE):
            numbers = order[begin : begin + _AT_ONCE]
            found = entries_by_number(self._db, numbers)
            yield from (found[number] for number in numbers if number in found)

    def sorted(self, entries: Sequence[Entry]) -> list[Entry]:
        """See `QueueOrder`."""
        self._update()
        waiting = {entry.number: entry for entry in entries if entry.state == WAITING}
        known = [waiting.pop(number) for number in self._found if number in waiting]
        return [*known, *waiting.values()]  # what has been granted since they were read

    def place(self, entry: Entry) -> QueuePosition:
        """See `QueueOrder`."""
        self._update()
        if entry.number not in self._found:  # granted or gone since it was read
            return QueuePosition(1, 1, (), ())
        group, earlier, first, last, overtaken = self._found[entry.number]
        entries = entries_by_number(self._db, (*first, *last))
        before = tuple(entries[number] for number in first if number in entries)
        directly_before = tuple(entries[number] for number in last if number in entries)
        return QueuePosition(earlier + 1, group.count, before, directly_before, overtaken)

    def _update(self) -> None:
        (by_others,) = self._db.execute("PRAGMA data_version").fetchone()
        seen = by_others, self._db.total_changes
        if seen == self._seen:
            return
        order = waiting_by_due_time(self._db)
        groups = {possible: _Group(possible) for _, possible in order}
        for group in groups.values():
            group.rivals = [other for other in groups.values() if group.servers & other.servers]
        self._found = {}
        for number, possible in order:
            group = groups[possible]
            overtaken = group.latest > number
            self._found[number] = group, group.count, group.first, group.last, overtaken
            for rival in group.rivals:
                rival.pass_by(number)
        self._seen = seen


def is_fair(db: sqlite3.Connection) -> bool:
    """Whether the ledger says that its queue is served fairly."""
    return read_meta(db, _ORDER) == _FAIR


def stored_order(db: sqlite3.Connection) -> QueueOrder:
    """The order that the ledger says."""
    return FairOrder(db) if is_fair(db) else QueueOrder(db)


def set_order(db: sqlite3.Connection, fair: bool) -> QueueOrder:
    """The order from now on, noted in the ledger; within a transaction."""
    write_meta(db, _ORDER, _FAIR if fair else _STRICT)
    return stored_order(db)
