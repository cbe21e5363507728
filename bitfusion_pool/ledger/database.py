"""The ledger's SQLite file: its schema, creating and opening it, and its table of single values (meta)."""

from __future__ import annotations

import os

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.ledger.pool_folder import DATABASE, ensure_folder, file_mode, unreadable
from bitfusion_pool.ledger.sqlite import sqlite3

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
CREATE TABLE shares (
  entry INTEGER NOT NULL REFERENCES entries (number) ON DELETE CASCADE,
  server TEXT NOT NULL, device INTEGER NOT NULL, memory_mib INTEGER NOT NULL);
CREATE INDEX shares_by_entry ON shares (entry);
"""


def open_database(folder: str) -> sqlite3.Connection:
    """A connection to the ledger in `folder`, which is created if it does not exist.

    Raises:
        PoolUnreadable: The file cannot be created or opened, or has another version.
    """
    path = f"{folder}/{DATABASE}"
    try:
        if not os.path.exists(path):
            ensure_folder(folder)
            _create(folder, path)
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise unreadable(folder, error) from error
    try:
        # a crash of the machine ends all leases anyway, because they are file locks
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA foreign_keys=ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        connection.close()
        raise unreadable(folder, error) from error
    if version != VERSION:
        connection.close()
        raise PoolUnreadable(
            "", f"pool ledger {path} is unreadable: it has version {version}, this program reads {VERSION}"
        )
    return connection


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


def _create(folder: str, path: str) -> None:
    # written under another name first, so that nobody opens half a ledger
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
        connection.close()
        os.chmod(draft, file_mode(folder))
        os.chown(draft, -1, os.stat(folder).st_gid)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
    finally:
        connection.close()
        for ending in ("", "-wal", "-shm"):
            try:
                os.unlink(draft + ending)
            except OSError:
                pass
