"""The ledger's SQLite file: its schema, creating and opening it, and its table of single values (meta)."""

from __future__ import annotations

import fcntl
import os
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.files.lease_lock import count_held_locks, remove_leftover_locks
from bitfusion_pool.ledger.files.pool_folder import (
    DATABASE,
    DATABASE_FILES,
    LOCKS,
    SUBFOLDERS,
    ensure_folder,
    ensure_subfolder,
)
from bitfusion_pool.ledger.liveness import boot_of, clock, note_boot, this_boot
from bitfusion_pool.ledger.storage.sqlite import sqlite3
from bitfusion_pool.own_files import check_own

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
BUSY_S = (
    20.0  # a transaction takes about a millisecond; longer means that a process is stopped or the disk hangs
)

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE servers (
  position INTEGER PRIMARY KEY, name TEXT, address TEXT, port INTEGER, dispatcher_port INTEGER, uuid TEXT,
  hostname TEXT, has_rdma INTEGER, cuda_version TEXT, driver_version TEXT);
CREATE TABLE devices (
  server INTEGER, number INTEGER, name TEXT, memory_mib INTEGER, simulated INTEGER, uuid TEXT,
  PRIMARY KEY (server, number)) WITHOUT ROWID;
CREATE TABLE entries (
  number INTEGER PRIMARY KEY AUTOINCREMENT, entry_id TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL, kind TEXT NOT NULL,
  gpus INTEGER NOT NULL, partial REAL, memory_mib INTEGER, filters TEXT NOT NULL, servers TEXT NOT NULL,
  possible TEXT NOT NULL, label TEXT NOT NULL, user TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
  uid INTEGER NOT NULL, asked REAL NOT NULL, granted REAL, expires REAL);
CREATE INDEX entries_by_state ON entries (state, number);
CREATE INDEX entries_by_servers ON entries (state, possible, number);
CREATE TABLE shares (
  entry INTEGER NOT NULL REFERENCES entries (number) ON DELETE CASCADE,
  server TEXT NOT NULL, device INTEGER NOT NULL, memory_mib INTEGER NOT NULL);
CREATE INDEX shares_by_entry ON shares (entry);
"""


def open_folder(folder: str, environ: Mapping[str, str]) -> str:
    """Make sure that the pool's folder can be used; returns its path without symbolic links.

    Raises:
        PoolUnreadable: It is not this user's alone, or cannot be made.
    """
    try:
        return ensure_folder(folder, environ)
    except OSError as error:
        from bitfusion_pool.ledger.files.complaints import folder_unusable

        raise folder_unusable(folder, environ, error) from None


def open_database(folder: str) -> sqlite3.Connection:
    """A connection to the ledger in `folder`, from `open_folder`; the ledger is made if there is none.

    Raises:
        PoolUnreadable: The file cannot be created or opened, or has another version.
    """
    path = f"{folder}/{DATABASE}"
    try:
        if not (_look(folder) and boot_of(folder) == this_boot()):
            _create(folder, path)
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        from bitfusion_pool.ledger.files.complaints import unreadable

        raise unreadable(folder, error) from error
    try:
        # what a power cut would leave is never read again: see `liveness`
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA foreign_keys=ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        connection.close()
        from bitfusion_pool.ledger.files.complaints import unreadable

        raise unreadable(folder, error) from error
    if version != VERSION:
        connection.close()
        from bitfusion_pool.ledger.files.complaints import other_version

        raise other_version(folder, version, VERSION)
    return connection


def be_patient(db: sqlite3.Connection, seconds: float = BUSY_S) -> None:
    """Wait so long for others who have the ledger locked, from now on."""
    db.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")


def read_meta(db: sqlite3.Connection, key: str) -> str | None:
    """A value of the table `meta`, or None if there is none."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def write_meta(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set a value of the table `meta`."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def write_meta_once(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set a value of the table `meta` unless there is one."""
    db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))


def _look(folder: str) -> bool:
    """Whether there is a ledger. Raises NotOurs for what SQLite must not open in its place."""
    exists = False
    for name in DATABASE_FILES:
        path = f"{folder}/{name}"
        try:
            check_own(path, os.lstat(path))
        except FileNotFoundError:
            continue
        exists = exists or name == DATABASE
    return exists


def _create(folder: str, path: str) -> None:
    for name in SUBFOLDERS:
        ensure_subfolder(folder, name)
    # one process at a time, by a lock that only this user can take
    locks = os.open(f"{folder}/{LOCKS}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(locks, fcntl.LOCK_EX)
        exists, boot = _look(folder), boot_of(folder)
        if exists and boot == this_boot():
            return  # another command was faster
        if exists and count_held_locks(folder):
            # of an earlier version, which did not note it; or this folder is on two machines at once
            if boot is None:
                _convert_expiry(path)
                note_boot(folder)
            return
        remove_database(folder)
        note_boot(folder)
        _write_empty(path)
    finally:
        os.close(locks)


def remove_database(folder: str) -> None:
    """Delete the ledger, and the lock files that no program holds. Raises OSError."""
    for name in DATABASE_FILES:
        try:
            os.unlink(f"{folder}/{name}")
        except FileNotFoundError:
            pass
    remove_leftover_locks(folder, set())


def _convert_expiry(path: str) -> None:
    """Earlier versions wrote the time of day."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        connection.execute(
            "UPDATE entries SET expires = ? + expires - ? WHERE expires IS NOT NULL", (clock(), time.time())
        )
    finally:
        connection.close()


def _write_empty(path: str) -> None:
    # written under another name first, so that nobody opens half a ledger
    draft = f"{path}.{os.urandom(8).hex()}"
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
        finally:
            connection.close()
        os.rename(draft, path)
    finally:
        for ending in ("", "-wal", "-shm"):
            try:
                os.unlink(draft + ending)
            except OSError:
                pass
