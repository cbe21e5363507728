"""The ledger's tables of entries and of the shares they hold: statements for requests and the queue."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.ledger.entries import HELD, RESERVED, WAITING, Entry, Holder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from bitfusion_client.kernel_state.activity import KernelActivity

_AT_ONCE = 16
_COLUMNS = (
    "number, entry_id, state, kind, gpus, partial, memory_mib, filters, servers, possible, "
    "label, user, pid, host, uid, asked, granted, expires"
)


def insert_entry(
    db: sqlite3.Connection,
    entry_id: str,
    kind: str,
    request: GpuRequest,
    possible: Iterable[str],
    holder: Holder,
    now: float,
) -> None:
    """Write a new entry at the end of the queue; `possible`: the keys of the servers that could serve it."""
    names = _COLUMNS.partition(", ")[2]  # the number is counted by SQLite
    filters = "\n".join(f"{key}={value}" for key, value in request.filters)
    values = (
        *(entry_id, WAITING, kind, request.gpus, request.partial, request.memory_mib, filters),
        *("\n".join(request.servers), " ".join(possible)),
        *(holder.label, holder.user, holder.pid, holder.host, holder.uid, now, None, None),
    )
    db.execute(f"INSERT INTO entries ({names}) VALUES ({','.join('?' * len(values))})", values)


def read_entry(db: sqlite3.Connection, entry_id: str) -> Entry | None:
    """The entry with this id, or None."""
    found = _entries(db, "entry_id = ?", entry_id)
    return found[0] if found else None


def read_state(db: sqlite3.Connection, entry_id: str) -> str | None:
    """The state of the entry with this id, or None."""
    row = db.execute("SELECT state FROM entries WHERE entry_id = ?", (entry_id,)).fetchone()
    return row[0] if row else None


def all_entries(db: sqlite3.Connection) -> list[Entry]:
    """Every entry, in the order of the queue, with what their kernels do."""
    return _entries(db, "1", activities=read_activities(db))


def waiting_entries(db: sqlite3.Connection) -> Iterator[Entry]:
    """The entries that wait, in the order of the queue. The caller may change the table meanwhile."""
    last = 0
    while True:
        # a few at a time, because the caller seldom wants all of a long queue
        rows = _rows(db, "state = ? AND number > ? ORDER BY number LIMIT ?", WAITING, last, _AT_ONCE)
        for row in rows:
            yield _entry(row)
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1][0]


def entries_holding(db: sqlite3.Connection, servers: Sequence[str]) -> list[Entry]:
    """The entries that hold GPUs of any of these servers, the longest first; without their shares."""
    shares = f"SELECT entry FROM shares WHERE server IN {_marks(servers)}"
    where = f"state = '{HELD}' AND number IN ({shares}) ORDER BY granted"
    return list(map(_entry, _rows(db, where, *servers)))


def count_waiting(db: sqlite3.Connection, number: int) -> list[tuple[str, int, int]]:
    """For each set of servers, as text: how many entries wait for it, and how many before `number`."""
    return db.execute(
        "SELECT possible, count(*), sum(number < ?) FROM entries WHERE state = ? GROUP BY possible",
        (number, WAITING),
    ).fetchall()


def waiting_before(
    db: sqlite3.Connection, possible: Sequence[str], number: int, count: int, last: bool = False
) -> list[Entry]:
    """Some of the entries that wait for one of these sets of servers before `number`.

    Args:
        db: The ledger.
        possible: Sets of servers, from `count_waiting`.
        number: An entry's number.
        count: How many entries at most.
        last: Whether to take the last ones instead of the first.
    """
    where = f"state = '{WAITING}' AND number < ? AND possible IN {_marks(possible)}"
    order = f"ORDER BY number {'DESC' if last else ''} LIMIT ?"
    return list(map(_entry, _rows(db, f"{where} {order}", number, *possible, count)))


def make_due_times(db: sqlite3.Connection) -> None:
    """Make the table of when entries of a fair queue are due, which only such a ledger has."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS due_times "
        "(entry INTEGER PRIMARY KEY REFERENCES entries (number) ON DELETE CASCADE, due REAL NOT NULL)"
    )


def write_due_time(db: sqlite3.Connection, number: int, due: float) -> None:
    """Write when an entry is due."""
    db.execute("INSERT INTO due_times VALUES (?, ?)", (number, due))


def due_columns(db: sqlite3.Connection) -> list[tuple[int, str, int, float, float]]:
    """Number, id, uid, time of the request and when it is due, of every entry."""
    statement = (
        "SELECT number, entry_id, uid, asked, ifnull(due, asked) FROM entries "
        "LEFT JOIN due_times ON entry = number"
    )
    return db.execute(statement).fetchall()


def waiting_by_due_time(db: sqlite3.Connection) -> list[tuple[int, str]]:
    """Number and possible servers of the entries that wait, those that are due first before others.

    One that came when the queue was not fair was due when it came.
    """
    statement = (
        "SELECT number, possible FROM entries LEFT JOIN due_times ON entry = number "
        f"WHERE state = '{WAITING}' ORDER BY ifnull(due, asked), number"
    )
    return db.execute(statement).fetchall()


def entries_by_number(db: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Entry]:
    """Those of a few entries that wait, without what is gone."""
    rows = _rows(db, f"state = '{WAITING}' AND number IN {_marks(numbers)}", *numbers)
    return {row[0]: _entry(row) for row in rows}


def liveness_columns(db: sqlite3.Connection) -> list[tuple[str, str, float | None, str]]:
    """Id, kind, expiry and state of every entry, in the order of the queue."""
    return db.execute("SELECT entry_id, kind, expires, state FROM entries ORDER BY number").fetchall()


def entries_of_user(db: sqlite3.Connection, uid: int) -> list[Entry]:
    """Every entry of a user, in the order of the queue."""
    return _entries(db, "uid = ?", uid)


def grant_entry(db: sqlite3.Connection, number: int, shares: Iterable[Share], now: float) -> None:
    """Turn a waiting entry into one that holds these shares."""
    for share in shares:
        db.execute(
            "INSERT INTO shares VALUES (?, ?, ?, ?)", (number, share.server, share.number, share.memory_mib)
        )
    db.execute("UPDATE entries SET state = ?, granted = ? WHERE number = ?", (HELD, now, number))


def set_possible_servers(db: sqlite3.Connection, number: int, possible: Iterable[str]) -> None:
    """Replace the keys of the servers that could serve an entry."""
    db.execute("UPDATE entries SET possible = ? WHERE number = ?", (" ".join(possible), number))


def set_expiry(db: sqlite3.Connection, entry_id: str, expires_at: float) -> bool:
    """Set until when a reserved entry lives without a lock; after 0 it stays so.

    Returns:
        False if there is no such entry, or 0 was set.
    """
    changed = db.execute(
        "UPDATE entries SET expires = ? WHERE entry_id = ? AND kind = ? AND state = ? "
        "AND (expires IS NULL OR expires > 0)",
        (expires_at, entry_id, RESERVED, HELD),
    )
    return changed.rowcount > 0


def write_activity(db: sqlite3.Connection, entry_id: str, activity: KernelActivity) -> None:
    """Note what the kernel of an entry does, in a table that only a ledger has in which that was noted."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS activities "
        "(entry INTEGER PRIMARY KEY REFERENCES entries (number) ON DELETE CASCADE, "
        "state TEXT NOT NULL, since REAL NOT NULL, idle_since REAL, notebook TEXT NOT NULL)"
    )
    db.execute(
        "INSERT OR REPLACE INTO activities SELECT number, ?, ?, ?, ? FROM entries WHERE entry_id = ?",
        (activity.state, activity.since, activity.idle_since, activity.notebook, entry_id),
    )


def read_activities(db: sqlite3.Connection) -> dict[str, KernelActivity]:
    """What is known of the kernels of entries, by the entries' ids."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'activities'").fetchone():
        return {}
    from bitfusion_client.kernel_state.activity import KernelActivity

    columns = "entry_id, activities.state, since, idle_since, notebook"
    found = db.execute(f"SELECT {columns} FROM activities JOIN entries ON number = entry").fetchall()
    return {entry_id: KernelActivity(*values) for entry_id, *values in found if values[0]}


def delete_entry(db: sqlite3.Connection, entry_id: str) -> bool:
    """Delete the entry and its shares. False if there is no such entry."""
    return db.execute("DELETE FROM entries WHERE entry_id = ?", (entry_id,)).rowcount > 0


def memory_held(db: sqlite3.Connection) -> Iterable[tuple[str, int, int]]:
    """Server key, device number and leased MiB of every device of which something is leased."""
    return db.execute("SELECT server, device, sum(memory_mib) FROM shares GROUP BY server, device")


def _rows(db: sqlite3.Connection, where: str, *values: object) -> list[tuple[Any, ...]]:
    return db.execute(f"SELECT {_COLUMNS} FROM entries WHERE {where}", values).fetchall()


def _marks(values: Sequence[object]) -> str:
    return f"({','.join('?' * len(values))})"


def _entries(
    db: sqlite3.Connection,
    where: str,
    *values: object,
    activities: Mapping[str, KernelActivity] | None = None,
) -> list[Entry]:
    rows = _rows(db, f"{where} ORDER BY number", *values)
    shares = _shares_by_entry(db) if any(row[2] == HELD for row in rows) else {}
    known = activities or {}
    return [_entry(row, shares.get(row[0], ()), known.get(row[1])) for row in rows]


def _shares_by_entry(db: sqlite3.Connection) -> dict[int, list[Share]]:
    found: dict[int, list[Share]] = {}
    for number, server, device, memory_mib in db.execute("SELECT * FROM shares ORDER BY server, device"):
        found.setdefault(number, []).append(Share(server, device, memory_mib))
    return found


def _entry(
    row: tuple[Any, ...], shares: Iterable[Share] = (), activity: KernelActivity | None = None
) -> Entry:
    number, entry_id, state, kind, gpus, partial, memory_mib, filters, servers, possible = row[:10]
    label, user, pid, host, uid, asked, granted, expires = row[10:]
    pairs = tuple((key, value) for key, _, value in (line.partition("=") for line in filters.splitlines()))
    request = GpuRequest(gpus, partial, memory_mib, pairs, tuple(servers.splitlines()))
    holder = Holder(label, user, pid, host, uid)
    times = asked, granted, expires
    return Entry(
        *(number, entry_id, state, kind, request, holder, tuple(possible.split())),
        *times,
        *(tuple(shares), activity),
    )
