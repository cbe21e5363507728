"""The ledger: who holds which GPUs and who waits for them, in the order they came.

Every change is one SQLite transaction in which the queue is settled: whatever fits now is granted, strictly
from the front, whoever's process happens to do it. Nobody needs to be running for others to get on.
"""

from __future__ import annotations

import os
import time

from bitfusion_client.errors import NoGpusAvailable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.configuration import configuration_path, read_configuration, stamp
from bitfusion_pool.inventory.emulation import Manners, join_manners, manners_from, split_manners
from bitfusion_pool.inventory.placement import candidates, choose, never
from bitfusion_pool.inventory.servers import default_servers
from bitfusion_pool.ledger import lease_lock as liveness
from bitfusion_pool.ledger.database import open_store
from bitfusion_pool.ledger.entries import HELD, PROCESS, REMOTE, RESERVED, WAITING, Entry, Holder, Standing
from bitfusion_pool.ledger.pool_folder import file_mode, pool_folder
from bitfusion_pool.ledger.rows import (
    COLUMNS,
    entry_from_row,
    insert_entry,
    read_servers,
    shares_by_entry,
    write_servers,
)
from bitfusion_pool.ledger.sqlite import sqlite3
from bitfusion_pool.ledger.transaction import Change, Telling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.request import GpuRequest
    from bitfusion_pool.inventory.servers import Server


class Ledger:
    """One user's view of the ledger. Not to be shared by threads. Methods raise PoolUnreadable."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = pool_folder(environ)
        self._db = open_store(self.folder)
        self._servers: tuple[Server, ...] | None = None
        self._inventory: str | None = None
        try:
            with self._telling():
                self.mode = file_mode(self.folder)
                self._follow_configuration(environ)
                self.manners = self._read_manners(environ)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what there is ---------------------------------------------------------------------------------

    @property
    def servers(self) -> tuple[Server, ...]:
        if self._servers is None:
            with self._telling():
                self._servers = read_servers(self._db)
        return self._servers

    def _follow_configuration(self, environ: Mapping[str, str]) -> None:
        path = configuration_path(self.folder, environ)
        found = stamp(path, required="BITFUSION_POOL_CONFIG" in environ)
        known = self._meta("configuration")
        if known == found or (known is not None and not found):
            return  # a pool keeps its description when the file is gone
        servers, manners = read_configuration(path) if found else ((), {})
        self.describe(servers or default_servers(), manners, found)

    def describe(self, servers: tuple[Server, ...], manners: Mapping[str, str], found: str = "") -> None:
        """Replace the inventory. Leases stay; what they hold of devices that are gone no longer counts."""
        with self._change() as change:
            write_servers(self._db, servers)
            self._servers, self._inventory = servers, os.urandom(8).hex()
            for key, value in (
                ("inventory", self._inventory),
                ("configuration", found),
                ("manners", join_manners(manners)),
            ):
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
            for entry in self._entries("state = ?", WAITING):
                possible = " ".join(candidates(entry.request, servers))
                self._db.execute("UPDATE entries SET possible = ? WHERE number = ?", (possible, entry.number))
            self._settle(change)

    def _follow_inventory(self) -> None:
        # somebody may have described the pool anew since we looked
        inventory = self._meta("inventory")
        if inventory != self._inventory:
            self._servers, self._inventory = None, inventory

    def _meta(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def _read_manners(self, environ: Mapping[str, str]) -> Manners:
        stored = split_manners(self._meta("manners") or "")
        return manners_from(stored, split_manners(environ.get("BITFUSION_POOL_MANNERS", "")))

    def client_id(self, uid: int) -> str:
        """The uuid under which this user is known to the servers: made once, then kept."""
        with self._telling():
            known = self._meta(f"client {uid}")
            if known is None:
                digits = os.urandom(16).hex()
                fresh = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
                with self._change():
                    self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (f"client {uid}", fresh))
                known = self._meta(f"client {uid}")
            return known or ""

    # --- asking, waiting, giving back ------------------------------------------------------------------

    def ask(
        self, request: GpuRequest, holder: Holder, wait: bool = True, kind: str = PROCESS
    ) -> tuple[Entry, liveness.LifeLock]:
        """Take GPUs, or a place in the queue; `entry.state` tells which. The lock is the caller's to keep.

        Raises NeverSatisfiable, InvalidRequest, and NoGpusAvailable if it may not `wait`.
        """
        possible = candidates(request, self.servers)
        if not possible:
            raise never(request, self.servers)
        entry_id = os.urandom(8).hex()
        # the lock comes first: whoever is in the ledger is alive
        with self._telling():
            lock = liveness.LifeLock.create(self.folder, entry_id, self.mode)
            try:
                with self._change() as change:
                    insert_entry(self._db, entry_id, kind, request, tuple(possible), holder, time.time())
                    self._settle(change)
                    if self._state(entry_id) == WAITING and self._bury(change, self._dead(but=entry_id)):
                        self._settle(change)
                    entry = self._one(entry_id)
                    if entry is None:  # cannot be: it was written in this transaction
                        raise sqlite3.DatabaseError("the entry vanished")
                    if entry.state == WAITING and not wait:
                        self._delete(entry.number)
                        raise NoGpusAvailable(request, self._shortage(request, possible))
            except BaseException:
                # unlocked first: should even giving back fail, the entry is dead and others take it back
                lock.close()
                self.give_back(entry_id)
                raise
        return entry, lock

    def _shortage(self, request: GpuRequest, possible: Mapping[str, list[tuple[int, int]]]) -> str:
        free = self._free()
        most = max(
            sum(free.get((key, number), 0) >= needed for number, needed in devices)
            for key, devices in possible.items()
        )
        needed = max(needed for devices in possible.values() for _, needed in devices)
        return (
            f"not enough GPUs available: {request.gpus} GPUs with {needed} MiB of memory each requested, "
            f"{min(most, request.gpus)} available on one server"
        )

    def look(self, entry_id: str) -> Entry | None:
        """The entry as it is now; None if it is gone."""
        with self._telling():
            self._follow_inventory()
            return self._one(entry_id)

    def version(self) -> int:
        """A number that changes when another process changed the ledger."""
        with self._telling():
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            return int(version)

    def standing(self, entry: Entry) -> Standing:
        """The place of a waiting entry among those that want the same servers, and who is in its way."""
        wanted = set(entry.servers)
        with self._telling():
            waiting = [one for one in self._entries("state = ?", WAITING) if wanted.intersection(one.servers)]
            earlier = [one for one in waiting if one.number < entry.number]
            marks = ",".join("?" * len(entry.servers))
            holding = self._entries(
                f"state = '{HELD}' AND number IN (SELECT entry FROM shares WHERE server IN ({marks}))",
                *entry.servers,
            )
        holding.sort(key=lambda one: one.granted or 0)
        place = len(earlier) + 1
        return Standing(place, max(len(waiting), place), (*holding, *earlier), time.time())

    def reap(self) -> int:
        """Take back what dead holders and waiters left; returns how many. Cheap if there are none."""
        with self._telling():
            if not self._dead():
                return 0
            with self._change() as change:
                # looked at again: whoever was faster has settled the queue already
                buried = self._bury(change, self._dead())
                self._settle(change)
            return buried

    def give_back(self, entry_id: str) -> bool:
        """End a lease, or leave the queue. False if the entry was gone already."""
        with self._telling(), self._change() as change:
            found = self._db.execute("SELECT number FROM entries WHERE entry_id = ?", (entry_id,))
            row = found.fetchone()
            if row is not None:
                self._delete(row[0])
                self._settle(change)
            change.forget.append(entry_id)
        return row is not None

    def renew(self, entry_id: str, ttl: float) -> bool:
        """Let a reserved or remote entry live `ttl` seconds from now without a lock. False if it is gone."""
        with self._telling(), self._change():
            changed = self._db.execute(
                "UPDATE entries SET expires = ? "
                "WHERE entry_id = ? AND (kind = ? OR (kind = ? AND state = ?))",
                (time.time() + ttl, entry_id, REMOTE, RESERVED, HELD),
            )
            return changed.rowcount > 0

    def entries(self) -> list[Entry]:
        """Everybody in the ledger, in the order they came; may include some who are dead."""
        with self._telling():
            return self._entries("1")

    def free(self) -> dict[tuple[str, int], int]:
        """Free MiB of each (server, device number); negative if a device shrank below what is held of it."""
        with self._telling():
            return self._free()

    def is_alive(self, entry: Entry) -> bool:
        """Whether the entry's holder is there, or its time has not run out."""
        return self._lives(entry.entry_id, entry.kind, entry.expires, time.time())

    def in_use(self, entry_id: str) -> bool:
        """Whether any process holds the entry's lock; a file that is gone is held by nobody we know."""
        return liveness.has_lock_file(self.folder, entry_id) and liveness.is_alive(self.folder, entry_id)

    def check(self) -> str:
        """Let SQLite look at the whole file; returns what there is. Raises PoolUnreadable."""
        with self._telling():
            (answer,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                raise sqlite3.DatabaseError(answer)
            rows = self._db.execute("SELECT state, count(*) FROM entries GROUP BY state").fetchall()
        counts = dict(rows)
        return f"{counts.get(HELD, 0)} leases, {counts.get(WAITING, 0)} waiting"

    # --- inside a transaction --------------------------------------------------------------------------

    def _settle(self, change: Change) -> None:
        """Grant what can be granted, from the front; a server somebody waits for is closed to all behind."""
        self._follow_inventory()
        closed: set[str] = set()
        free: dict[tuple[str, int], int] | None = None
        by_arrival = f"SELECT {COLUMNS} FROM entries WHERE state = ? ORDER BY number"
        for row in self._db.execute(by_arrival, (WAITING,)).fetchall():
            if len(closed) == len(self.servers):
                break
            entry = entry_from_row(row)
            if closed.issuperset(entry.servers):
                continue
            if not self.is_alive(entry):
                self._bury(change, [(entry.number, entry.entry_id)])
                continue
            free = self._free() if free is None else free
            possible = candidates(entry.request, self.servers)
            shares = choose(entry.request.gpus, possible, free, closed)
            if shares is None:
                closed.update(possible)
                change.wake.append(entry.entry_id)  # it may have become the next one
                continue
            for share in shares:
                free[share.server, share.number] -= share.memory_mib
                self._db.execute(
                    "INSERT INTO shares VALUES (?, ?, ?, ?)",
                    (entry.number, share.server, share.number, share.memory_mib),
                )
            self._db.execute(
                "UPDATE entries SET state = ?, granted = ? WHERE number = ?",
                (HELD, time.time(), entry.number),
            )
            change.wake.append(entry.entry_id)

    def _free(self) -> dict[tuple[str, int], int]:
        free = {(server.key, one.number): one.memory_mib for server in self.servers for one in server.devices}
        held = self._db.execute("SELECT server, device, sum(memory_mib) FROM shares GROUP BY server, device")
        for server, device, taken in held:
            if (server, device) in free:
                free[server, device] -= taken
        return free

    def _dead(self, but: str = "") -> list[tuple[int, str]]:
        now = time.time()
        rows = self._db.execute("SELECT number, entry_id, kind, expires FROM entries ORDER BY number")
        return [
            (number, entry_id)
            for number, entry_id, kind, expires in rows.fetchall()
            if entry_id != but and not self._lives(entry_id, kind, expires, now)
        ]

    def _lives(self, entry_id: str, kind: str, expires: float | None, now: float) -> bool:
        if expires is not None and (expires > now or kind == REMOTE):
            return expires > now
        return liveness.is_alive(self.folder, entry_id, kind == RESERVED)

    def _bury(self, change: Change, dead: list[tuple[int, str]]) -> int:
        for number, entry_id in dead:
            self._delete(number)
            change.forget.append(entry_id)
        return len(dead)

    def _delete(self, number: int) -> None:
        self._db.execute("DELETE FROM entries WHERE number = ?", (number,))

    def _state(self, entry_id: str) -> str | None:
        row = self._db.execute("SELECT state FROM entries WHERE entry_id = ?", (entry_id,)).fetchone()
        return row[0] if row else None

    def _one(self, entry_id: str) -> Entry | None:
        found = self._entries("entry_id = ?", entry_id)
        return found[0] if found else None

    def _entries(self, where: str, *values: object) -> list[Entry]:
        query = f"SELECT {COLUMNS} FROM entries WHERE {where} ORDER BY number"
        rows = self._db.execute(query, values).fetchall()
        shares = shares_by_entry(self._db) if any(row[2] == HELD for row in rows) else {}
        return [entry_from_row(row, shares.get(row[0], ())) for row in rows]

    def _change(self) -> Change:
        return Change(self._db, self.folder)

    def _telling(self) -> Telling:
        return Telling(self.folder)
