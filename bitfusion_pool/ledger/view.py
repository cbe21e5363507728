"""What a ledger shows to who only looks: entries, queue positions, free memory, servers.

`Ledger` adds what changes it.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.ledger.files.lease_lock import has_lock_file, is_held
from bitfusion_pool.ledger.files.pool_folder import pool_folder
from bitfusion_pool.ledger.queue.grants import Queue
from bitfusion_pool.ledger.queue.queue_order import stored_order
from bitfusion_pool.ledger.storage.database import open_database, open_folder
from bitfusion_pool.ledger.storage.entry_table import all_entries, entries_of_user, read_entry
from bitfusion_pool.ledger.storage.sqlite import sqlite3
from bitfusion_pool.ledger.storage.stored_inventory import StoredInventory
from bitfusion_pool.ledger.storage.transaction import TranslatedErrors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.inventory.nvidia.device_use import UseByDevice
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry
    from bitfusion_pool.ledger.queue.queue_position import QueuePosition


class LedgerView:
    """A connection to the ledger of the pool that the environment names, and what can be seen by it.

    Not to be shared by threads. Every method raises PoolUnreadable if the pool's files cannot be used.

    Attributes:
        folder: The pool's folder.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = open_folder(pool_folder(environ), environ)
        self._environ = environ
        self._db = open_database(self.folder)
        self._inventory = StoredInventory(self._db)
        try:
            with self._translated_errors():
                self._queue = Queue(self._db, self.folder, self._inventory, stored_order(self._db))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; leases are not affected."""
        self._db.close()

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers, in the order of the configuration."""
        with self._translated_errors():
            return self._inventory.servers

    @property
    def has_real_devices(self) -> bool:
        """Whether any device is not simulated."""
        with self._translated_errors():
            return self._inventory.has_real_devices

    @property
    def device_use(self) -> UseByDevice:
        """What was last noted of the real devices: how busy, used by whom outside the pool, which problem."""
        with self._translated_errors():
            return self._inventory.device_use

    def entry(self, entry_id: str) -> Entry | None:
        """The entry as it is now; None if it is gone."""
        with self._translated_errors():
            self._inventory.refresh()
            return read_entry(self._db, entry_id)

    def entries(self) -> list[Entry]:
        """All entries in the order they came; may include some whose holders are dead."""
        with self._translated_errors():
            return all_entries(self._db)

    def in_queue_order(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those of all `entries` that wait, as they are to be served."""
        return self._queue.order.sorted(entries)

    def states(self) -> dict[str, str]:
        """The state of every entry by its id; may include some whose holders are dead."""
        with self._translated_errors():
            return dict(self._db.execute("SELECT entry_id, state FROM entries").fetchall())

    def usage_columns(self) -> list[tuple[str, str, str, str, int, float, float | None]]:
        """Id, state, user, host, uid, times of request and grant of every entry, those of `states`."""
        with self._translated_errors():
            columns = "entry_id, state, user, host, uid, asked, granted"
            return self._db.execute(f"SELECT {columns} FROM entries").fetchall()

    def shares_held(self) -> list[tuple[str, str, int, int]]:
        """Of every share that is leased: the id of its entry, server key, device number, MiB."""
        with self._translated_errors():
            columns = "entry_id, server, device, shares.memory_mib"
            return self._db.execute(f"SELECT {columns} FROM shares JOIN entries ON number = entry").fetchall()

    def count_of_user(self, uid: int) -> dict[str, tuple[int, int]]:
        """By state, how many entries a user has and how many GPUs they ask for."""
        with self._translated_errors():
            found = self._db.execute(
                "SELECT state, count(*), sum(gpus) FROM entries WHERE uid = ? GROUP BY state", (uid,)
            )
            return {state: (entries, gpus) for state, entries, gpus in found}

    def entries_of_user(self, uid: int) -> list[Entry]:
        """All entries of a user in the order they came; may include some whose holders are dead."""
        with self._translated_errors():
            return entries_of_user(self._db, uid)

    def queue_position(self, entry: Entry, inside: str = "") -> QueuePosition:
        """The position of a waiting entry, and the entries ahead of it.

        `inside` is the id of the lease under which the waiting command itself runs.
        """
        with self._translated_errors():
            return self._queue.position(entry, inside)

    def free_memory(self) -> dict[tuple[str, int], int]:
        """Free MiB by (server key, device number); negative if a device shrank below what is leased of it."""
        with self._translated_errors():
            return self._queue.free_memory()

    def is_alive(self, entry: Entry) -> bool:
        """Whether the holder of the entry lives."""
        return self._queue.is_alive(entry)

    def is_in_use(self, entry_id: str, shared: bool = False) -> bool:
        """Whether any process holds the entry's lock. A deleted file is held by nobody we know.

        `shared`: whether several may hold it together, as those do who use a reservation.
        """
        return has_lock_file(self.folder, entry_id) and is_held(self.folder, entry_id, shared)

    def change_counter(self) -> int:
        """A number that changes when another connection has changed the ledger."""
        with self._translated_errors():
            (counter,) = self._db.execute("PRAGMA data_version").fetchone()
            return int(counter)

    def check_integrity(self) -> str:
        """Let SQLite check the whole file; returns how many entries there are, as text."""
        with self._translated_errors():
            (answer,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                raise sqlite3.DatabaseError(answer)
            counts = dict(self._db.execute("SELECT state, count(*) FROM entries GROUP BY state").fetchall())
        return f"{counts.get(HELD, 0)} leases, {counts.get(WAITING, 0)} waiting"

    def _translated_errors(self) -> TranslatedErrors:
        return TranslatedErrors(self.folder)
