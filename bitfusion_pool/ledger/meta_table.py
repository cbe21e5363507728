"""The ledger's table of single values by name: client ids, and which configuration the inventory is from."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3


def read_meta(db: sqlite3.Connection, key: str) -> str | None:
    """The value, or None if there is none."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def write_meta(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set the value."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def write_meta_once(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set the value unless there is one."""
    db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
