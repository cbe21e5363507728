"""SQLite without the date converters of the standard package, whose import costs every command 1.5 ms."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import _sqlite3 as sqlite3
    except ImportError:  # not every interpreter has the C module under this name
        import sqlite3

__all__ = ["sqlite3"]
