"""The ledger: submit a request for GPUs, release it, renew it, follow pool.toml.

Every change is one SQLite transaction that also grants whatever fits afterwards (see `queue`), whichever
process makes it. No process needs to run for others to get their turn.
"""

from __future__ import annotations

import os
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.emulation import emulation_from, environment_settings
from bitfusion_pool.inventory.placement import candidates
from bitfusion_pool.inventory.servers import default_servers
from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, HELD, PROCESS, REMOTE, WAITING
from bitfusion_pool.ledger.files.configuration_file import ConfigurationFile
from bitfusion_pool.ledger.files.lease_lock import LeaseLock, has_lock_file, is_held
from bitfusion_pool.ledger.files.pool_folder import pool_folder
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.ledger.queue.grants import Queue, servers_for
from bitfusion_pool.ledger.queue.queue_order import is_fair, set_order, stored_order
from bitfusion_pool.ledger.storage.database import (
    BUSY_S,
    be_patient,
    open_database,
    open_folder,
    read_meta,
    write_meta,
    write_meta_once,
)
from bitfusion_pool.ledger.storage.entry_table import (
    all_entries,
    entries_of_user,
    insert_entry,
    read_activities,
    read_entry,
    read_state,
    set_expiry,
    write_activity,
)
from bitfusion_pool.ledger.storage.sqlite import sqlite3
from bitfusion_pool.ledger.storage.stored_inventory import StoredInventory
from bitfusion_pool.ledger.storage.transaction import Transaction, TranslatedErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.nvidia.device_use import UseByDevice
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry, Holder
    from bitfusion_pool.ledger.queue.queue_position import QueuePosition

_LAST_NAME = "last token name"  # in the table `meta`


class Ledger:
    """A connection to the ledger of the pool that the environment names; creates what is missing.

    Not to be shared by threads. Every method raises PoolUnreadable if the pool's files cannot be used.

    Attributes:
        folder: The pool's folder.
        emulation: The emulation settings of the configuration and of the environment.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = open_folder(pool_folder(environ), environ)
        self._environ = environ
        self._file = ConfigurationFile(self.folder, environ)
        self._db = open_database(self.folder)
        self._inventory = StoredInventory(self._db)
        try:
            with self._translated_errors():
                self._queue = Queue(self._db, self.folder, self._inventory, stored_order(self._db))
            self.follow_configuration()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; leases are not affected."""
        self._db.close()

    # --- requests and leases ---------------------------------------------------------------------------

    def submit(
        self, request: GpuRequest, holder: Holder, wait: bool = True, kind: str = PROCESS
    ) -> tuple[Entry, LeaseLock]:
        """Take GPUs, or a position in the queue.

        Args:
            request: What is wanted.
            holder: Who wants it, for others to read.
            wait: Whether the request may stay in the queue.
            kind: PROCESS, RESERVED or REMOTE: what proves that the holder lives.

        Clients on other machines get simulated devices only: no CUDA is forwarded to them.

        Returns:
            The entry, whose `state` tells whether it holds GPUs or waits, and its lock for the caller to
            keep; a remote one's is none.

        Raises:
            NeverSatisfiable: No server could serve the request even if the pool were empty.
            NoGpusAvailable: The request would have to wait but may not, or the GPUs that could serve it have
                a problem.
            InvalidRequest: A filter has an unknown key.
        """
        possible = candidates(request, servers_for(holder, self._usable_servers()))
        if not possible:
            from bitfusion_pool.inventory.refusals import never_satisfiable, out_of_use

            servers = servers_for(holder, self.servers)
            if candidates(request, servers):
                raise out_of_use(request, self.device_use)
            raise never_satisfiable(request, servers)
        entry_id = os.urandom(8).hex()
        with self._translated_errors():
            # locked before the ledger knows the entry: an entry without a locked file is dead
            lock = LeaseLock.none(entry_id) if kind == REMOTE else LeaseLock.create(self.folder, entry_id)
            try:
                with self._transaction() as transaction:
                    insert_entry(self._db, entry_id, kind, request, possible, holder, time.time())
                    self._queue.order.add(entry_id)
                    self._queue.grant(transaction)
                    must_wait = read_state(self._db, entry_id) == WAITING
                    if must_wait and self._queue.remove_dead(transaction, HELD):
                        self._queue.grant(transaction)
                    entry = read_entry(self._db, entry_id)
                    if entry is None:  # cannot be: it was written in this transaction
                        raise sqlite3.DatabaseError("the entry vanished")
                    if entry.state == WAITING and not wait:
                        from bitfusion_pool.inventory.refusals import not_enough_free

                        self._queue.remove(transaction, entry_id)
                        raise not_enough_free(request, possible, self._queue.free_memory())
            except BaseException:
                # the lock first: should even the release fail, the entry is dead and others remove it
                lock.close()
                self.release(entry_id)
                raise
        return entry, lock

    def release(self, entry_id: str) -> bool:
        """End a lease, or leave the queue. False if there is no such entry (any more)."""
        with self._translated_errors(), self._transaction() as transaction:
            found = self._queue.remove(transaction, entry_id)
            if found:
                self._queue.grant(transaction)
        return found

    def renew(self, entry_id: str, ttl: float) -> bool:
        """Let a reservation live `ttl` seconds from now without a lock. False if it is gone or given back."""
        with self._translated_errors(), self._transaction():
            return set_expiry(self._db, entry_id, clock() + ttl)

    def give_back(self, entry_id: str) -> None:
        """Let a reservation end with the last who uses it; it cannot be renewed any more."""
        with self._translated_errors(), self._transaction():
            set_expiry(self._db, entry_id, 0.0)

    def note_activity(self, entry_id: str, activity: KernelActivity, patience_s: float = BUSY_S) -> None:
        """Note what the kernel of an entry does, for whoever looks at the pool; nothing if the entry is gone.

        Called when that changes, by the command that holds or waits, in a service by its session.
        `patience_s` is how long others may keep the ledger locked meanwhile.
        """
        with self._translated_errors():
            be_patient(self._db, patience_s)
            try:
                with self._transaction():
                    write_activity(self._db, entry_id, activity)
            finally:
                be_patient(self._db)

    def activities(self) -> dict[str, KernelActivity]:
        """What is known of the kernels of entries, by the entries' ids."""
        with self._translated_errors():
            return read_activities(self._db)

    def reap(self) -> int:
        """Remove the entries of dead holders and waiters; returns how many. Cheap if there are none."""
        with self._translated_errors():
            if not self._queue.dead():
                return 0
            with self._transaction() as transaction:
                # another process may have been faster, and has granted then
                removed = self._queue.remove_dead(transaction)
                self._queue.grant(transaction)
            return removed

    # --- what there is to hand out ----------------------------------------------------------------------

    def follow_configuration(
        self, check: Callable[[tuple[Server, ...]], None] = lambda servers: None
    ) -> bool:
        """Read pool.toml if it has changed since it was read last, by whomever; leases and requests stay.

        Every command does so when it opens the ledger, a service while it runs.

        Args:
            check: Raises PoolUnreadable for servers that cannot be used.

        Returns:
            Whether the servers or the emulation settings may be others now.

        Raises:
            PoolUnreadable: The file is wrong; the ledger keeps what it has.
        """
        with self._translated_errors():
            before = self._inventory.servers
            version = self._file.changed_since(self._inventory.configuration_version)
            self._inventory.refresh()  # not before: the last one may just have been stored by another process
            if version is not None:
                servers, settings = self._file.read(version)
                servers = servers or default_servers()
                check(servers)
                with self._transaction() as transaction:
                    # leases stay; what they hold of devices that are gone counts again if these come back
                    self._inventory.replace(servers, settings, version)
                    self._queue.inventory_replaced(transaction)
            settings = self._inventory.emulation_settings
            self.emulation = emulation_from(settings, environment_settings(self._environ))
            return version is not None or self._inventory.servers != before

    def configuration_file_version(self) -> str:
        """A text that changes whenever pool.toml does; empty if there is none."""
        return self._file.version()

    def note_device_use(self, use: UseByDevice) -> None:
        """Note what a reading says of the real devices, and grant what fits now.

        Called by whoever has read them: in a user's own pool each command that shows or takes GPUs.
        """
        with self._translated_errors():
            if use == self._inventory.device_use:
                return
            with self._transaction() as transaction:
                self._inventory.note_device_use(use)
                self._queue.grant(transaction)

    def serve_fairly(self, fair: bool) -> None:
        """Serve the queue fairly (see `fair_order`), or strictly in the order requests came, from now on.

        Called by a service when it starts; every process that grants finds it in the ledger.
        """
        with self._translated_errors():
            if is_fair(self._db) == fair:
                return
            with self._transaction() as transaction:
                self._queue.order = set_order(self._db, fair)
                self._queue.grant(transaction)

    def use_servers(self, servers: tuple[Server, ...], version: str) -> None:
        """Hand out these servers' devices from now on; leases stay. Nothing if `version` is the last one.

        Called by a service whose folder has no pool.toml; the next pool.toml replaces them.
        """
        with self._translated_errors():
            if self._inventory.configuration_version == version:
                return
            with self._transaction() as transaction:
                self._inventory.replace(servers, {}, version)
                self._queue.inventory_replaced(transaction)

    # --- names ------------------------------------------------------------------------------------------

    def client_id(self, uid: int) -> str:
        """The uuid by which the servers know this user; made once, then kept."""
        key = f"client {uid}"
        with self._translated_errors():
            known = read_meta(self._db, key)
            if known is None:
                digits = os.urandom(16).hex()
                fresh = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
                with self._transaction():
                    write_meta_once(self._db, key, fresh)
                known = read_meta(self._db, key)
            return known or ""

    def number_of_name(self, name: str) -> int:
        """The number by which the ledger knows a token's name, below those of users; made once, then kept."""
        key = f"token name {name}"
        with self._translated_errors():
            if read_meta(self._db, key) is None:
                with self._transaction():
                    number = int(read_meta(self._db, _LAST_NAME) or FIRST_TOKEN_NAME + 1) - 1
                    write_meta(self._db, _LAST_NAME, str(number))
                    write_meta_once(self._db, key, str(number))
            return int(read_meta(self._db, key) or FIRST_TOKEN_NAME)

    # --- what is to be seen: entries, queue positions, free memory, servers ------------------------------

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

        `inside`: see `QueuePosition`.
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

    # --- inside ----------------------------------------------------------------------------------------

    def _usable_servers(self) -> tuple[Server, ...]:
        """The servers without devices on which there can be no new lease."""
        use = self.device_use
        if not use:
            return self.servers
        from bitfusion_pool.inventory.nvidia.device_use import usable_servers

        return usable_servers(self.servers, use)

    def _transaction(self) -> Transaction:
        return Transaction(self._db, self.folder)

    def _translated_errors(self) -> TranslatedErrors:
        return TranslatedErrors(self.folder)
