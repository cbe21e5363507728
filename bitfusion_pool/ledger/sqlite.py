"""SQLite, without what the standard package adds for dates (1.5 ms of every command's start)."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import _sqlite3 as sqlite3
    except ImportError:  # an interpreter that arranges it differently
        import sqlite3

__all__ = ["sqlite3"]
