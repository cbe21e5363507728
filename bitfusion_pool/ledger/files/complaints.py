"""What to say when the pool's files cannot be used: what is wrong, and what cures it.

Each cause has its own words. They are one line of the client's output; the kernel shows the part after
``What to do:`` as such. Imported only when something is wrong.
"""

from __future__ import annotations

import errno
import os

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import words_of
from bitfusion_pool.ledger.files.pool_folder import (
    DATABASE,
    FOLDER_VARIABLE,
    NAME,
    STATE_VARIABLE,
    default_folder,
)
from bitfusion_pool.own_files import NotOurs, trusted_path

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAMAGED = ("not a database", "malformed", "no such table", "no such column", "vanished", "corrupt")
_SPACE = ("disk is full", "disk i/o error", "unable to open", "readonly database")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_LEAST_FREE = 256 << 10  # bytes; SQLite's -shm and -wal need about 100 KiB


def folder_unusable(folder: str, environ: Mapping[str, str], why: OSError) -> PoolUnreadable:
    """A folder that is not this user's alone, or that cannot be made, whatever the system calls it."""
    if isinstance(why, NotOurs):
        return _folder_refused(folder, environ, why)
    return unreadable(folder, why) if why.errno in _NO_SPACE else cannot_write(folder, why)


def _folder_refused(folder: str, environ: Mapping[str, str], why: NotOurs) -> PoolUnreadable:
    unset = [name for name in (FOLDER_VARIABLE,) if environ.get(name)]
    rest = {key: value for key, value in environ.items() if key != FOLDER_VARIABLE}
    if environ.get(STATE_VARIABLE) and not _usable(default_folder(rest)):
        unset.append(STATE_VARIABLE)
        rest.pop(STATE_VARIABLE)
    if unset:
        cure = f"unset {' and '.join(unset)}; your own pool is {default_folder(rest)}"
    else:
        cure = _another_folder()
    return PoolUnreadable(
        "", f"pool folder {folder} is not yours alone: {why.strerror}; a pool is one user's own", cure
    )


def cannot_write(folder: str, why: object) -> PoolUnreadable:
    """A folder that cannot be made or written."""
    return PoolUnreadable("", f"pool folder {folder} cannot be written: {words_of(why)}", _another_folder())


def other_version(folder: str, found: int, ours: int) -> PoolUnreadable:
    """A ledger that another version of this program has made."""
    return PoolUnreadable(
        "",
        f"pool ledger {folder}/{DATABASE} was made by another version of this program: "
        f"its format is {found}, this program reads {ours}",
        f"use the version that made it, or make a new one once nothing runs: {_init(folder)}",
    )


def unreadable(folder: str, why: object) -> PoolUnreadable:
    """The error for what the operating system or SQLite says about the ledger."""
    if isinstance(why, PoolUnreadable):
        return why
    if isinstance(why, NotOurs):
        return PoolUnreadable(
            "",
            f"pool ledger cannot be used: {why.strerror}",
            f"move it away: {_quoted('mv', why.path, why.path + '.old')}",
        )
    text = words_of(why)
    small = text.lower()
    number = getattr(why, "errno", None)
    if any(words in small for words in _DAMAGED):
        return PoolUnreadable(
            "",
            f"pool ledger {folder}/{DATABASE} is damaged: {text}",
            f"end the programs that use the pool, then make a new one: {_init(folder)}",
        )
    if number in _NO_SPACE or any(words in small for words in _SPACE):
        kind = _what_is_wrong_with_the_disk(folder)
        if number in _NO_SPACE or "disk is full" in small or kind == "full":
            return PoolUnreadable(
                "",
                f"pool folder {folder} has no room: {text}",
                f"free some space on its disk, or set {FOLDER_VARIABLE} to a folder on another disk",
            )
        if kind:
            return cannot_write(folder, kind)
    if number in (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EPERM):
        return cannot_write(folder, why)
    if "locked" in small:
        return PoolUnreadable(
            "",
            f"pool ledger {folder}/{DATABASE} is kept by a process that does not go on: {text}",
            f"continue or end it; this shows which it is: {_quoted('fuser', '-v', f'{folder}/{DATABASE}')}",
        )
    return PoolUnreadable("", f"pool ledger {folder}/{DATABASE} cannot be used: {text}")


def no_allocation_file(folder: str, why: object) -> PoolUnreadable:
    """The allocation file has no place: TMPDIR names no folder that can be written."""
    return PoolUnreadable(
        "",
        f"pool cannot write an allocation file in {folder}: {words_of(why)}",
        "set TMPDIR to a folder that you can write to, such as /tmp"
        if os.environ.get("TMPDIR")
        else "set TMPDIR to a folder that you can write to",
    )


def _what_is_wrong_with_the_disk(folder: str) -> str:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return words_of(error)
    if found.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    if found.f_bavail * found.f_frsize < _LEAST_FREE or (found.f_files and not found.f_favail):
        return "full"
    return "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def _usable(path: str) -> bool:
    try:
        trusted_path(path)
    except OSError:
        return False
    return True


def _another_folder() -> str:
    return f"set {FOLDER_VARIABLE} to a folder that you can write to, such as /tmp/{NAME}-{os.geteuid()}"


def _init(folder: str) -> str:
    return _quoted("bitfusion-pool", "--dir", folder, "init", "--force")


def _quoted(*words: str) -> str:
    import shlex

    return shlex.join(words)
