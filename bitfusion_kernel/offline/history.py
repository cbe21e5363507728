"""Answers `history_request` while no kernel runs, from the SQLite file in which IPython keeps its history.

The file is opened read-only and never created. Relative sessions are counted as the coming kernel would count
them. The queries are those of IPython's `HistoryAccessor`; a test compares the answers with IPython's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from sqlite3 import Connection

DEFAULT_TAIL = 10
"""Lines of a `tail` request that names no number, as in IPython."""

BUSY_LIMIT = 0.2
"""Seconds to wait for another kernel that writes to the file; the Jupyter client waits meanwhile."""

_FILE_OPTION = "--HistoryManager.hist_file="
_ENABLED_OPTION = "--HistoryManager.enabled="
_FOLDER_OPTIONS = ("--ipython-dir=", "--IPKernelApp.ipython_dir=", "--BaseIPythonApplication.ipython_dir=")
_PROFILE_OPTIONS = ("--profile=", "--IPKernelApp.profile=", "--BaseIPythonApplication.profile=")
_PROFILE_FOLDER_OPTIONS = ("--profile-dir=", "--ProfileDir.location=")


def history_reply(
    content: Mapping[str, Any], kernel_options: Sequence[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """The content of the `history_reply`.

    Args:
        content: The content of the request.
        kernel_options: The options that the kernel's command line will have.
        environ: The environment that the kernel will have.

    Returns:
        Lines are `[session, line, input]` or `[session, line, [input, output]]`. A history that cannot be
        read is empty.
    """
    file = history_file(kernel_options, environ)
    lines: list[list[Any]] = []
    if file is not None:
        try:
            lines = _read(file, content)
        except (OSError, ValueError, TypeError, KeyError):
            lines = []
    return {"status": "ok", "history": lines}


def history_file(kernel_options: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The file that the kernel will use, or None if it keeps none. IPython's config files are not read."""
    if _value(kernel_options, (_ENABLED_OPTION,)).lower() in ("false", "0"):
        return None
    file = _value(kernel_options, (_FILE_OPTION,))
    if file:
        return None if file == ":memory:" else os.path.expanduser(file)
    profile = _value(kernel_options, _PROFILE_FOLDER_OPTIONS)
    if not profile:
        folder = _value(kernel_options, _FOLDER_OPTIONS) or environ.get("IPYTHONDIR", "")
        folder = os.path.expanduser(folder or os.path.join("~", ".ipython"))
        profile = os.path.join(folder, "profile_" + (_value(kernel_options, _PROFILE_OPTIONS) or "default"))
    return os.path.join(os.path.expanduser(profile), "history.sqlite")


def _value(options: Sequence[str], prefixes: Sequence[str]) -> str:
    """The value of the last of these options, in one word or in two, as in `--profile NAME`."""
    found = ""
    for index, option in enumerate(options):
        for prefix in prefixes:
            if option.startswith(prefix):
                found = option[len(prefix) :]
            elif option == prefix[:-1] and index + 1 < len(options):
                found = options[index + 1]
    return found


def _read(file: str, content: Mapping[str, Any]) -> list[list[Any]]:
    import sqlite3
    from urllib.parse import quote

    if not os.path.isfile(file):
        return []
    try:
        database = sqlite3.connect(
            f"file:{quote(os.path.abspath(file))}?mode=ro", uri=True, timeout=BUSY_LIMIT
        )
        try:
            return _answer(database, content)
        finally:
            database.close()
    except sqlite3.Error:
        return []


def _answer(database: Connection, content: Mapping[str, Any]) -> list[list[Any]]:
    raw = bool(content.get("raw", True))
    output = bool(content.get("output", False))
    kind = content.get("hist_access_type")
    n = content.get("n")
    if kind == "tail":
        count = DEFAULT_TAIL if n is None else int(n)
        return _select(database, "ORDER BY session DESC, line DESC LIMIT ?", (count,), raw, output)[::-1]
    if kind == "search":
        return _search(database, content.get("pattern"), n, bool(content.get("unique", False)), raw, output)
    if kind == "range":
        return _range(database, content, raw, output)
    return []


def _search(
    database: Connection, pattern: object, n: object, unique: bool, raw: bool, output: bool
) -> list[list[Any]]:
    searched = "history.source_raw"
    where = f"WHERE {searched} GLOB ?"
    values: tuple[object, ...] = (pattern,)
    if unique:
        where += f" GROUP BY {searched}"
    if n is not None:
        where += " ORDER BY session DESC, line DESC LIMIT ?"
        values += (n,)
    elif unique:
        where += " ORDER BY session, line"
    lines = _select(database, where, values, raw, output, newest=unique)
    return lines if n is None else lines[::-1]


def _range(database: Connection, content: Mapping[str, Any], raw: bool, output: bool) -> list[list[Any]]:
    session, start = (int(content.get(name) or 0) for name in ("session", "start"))
    stop = content.get("stop")
    if session <= 0:  # counted back from the session that the kernel will begin
        newest = database.execute("SELECT MAX(session) FROM sessions").fetchone()[0]
        coming = (newest or 0) + 1
        session += coming
        if session == coming:
            return _new_session(start, stop, output)
    where, values = "WHERE session=? AND line>=?", (session, start)
    if stop:
        return _select(database, where + " AND line<?", (*values, int(stop)), raw, output)
    return _select(database, where, values, raw, output)


def _new_session(start: int, stop: object, output: bool) -> list[list[Any]]:
    """A session that has just begun has the empty line 0, as IPython counts."""
    items = [""]
    begin = start + len(items) if start < 0 else start
    end = int(str(stop)) if stop else len(items)
    end = len(items) if end > len(items) else end + len(items) if end < 0 else end
    return [[0, line, [items[line], None] if output else items[line]] for line in range(begin, end)]


def _select(
    database: Connection,
    rest: str,
    values: tuple[object, ...],
    raw: bool,
    output: bool,
    newest: bool = False,
) -> list[list[Any]]:
    columns = "session, line, history." + ("source_raw" if raw else "source")
    table = "history"
    if output:
        columns += ", output_history.output"
        table += " LEFT JOIN output_history USING (session, line)"
    if newest:  # the newest row of each group; the factor is IPython's
        columns += ", MAX(session * 128 * 1024 + line)"
    rows = database.execute(f"SELECT {columns} FROM {table} {rest}", values).fetchall()
    if output:
        return [[row[0], row[1], [row[2], row[3]]] for row in rows]
    return [list(row[:3]) for row in rows]
