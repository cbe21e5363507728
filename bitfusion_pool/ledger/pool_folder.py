"""Where the pool's state lies, and who may write there.

One folder a machine (all its users share the GPUs), unless BITFUSION_POOL_DIR names another. Its permission
bits decide for everything in it: 0777 lets every user take GPUs, 0770 the members of its group.
It has no sticky bit: with one, Linux (fs.protected_regular) forbids the users each other's SQLite files.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "/var/tmp/bitfusion-pool"
LEDGER = "ledger.db"
SUBFOLDERS = ("locks", "bells")


def pool_folder(environ: Mapping[str, str]) -> str:
    """The folder to use; it may not exist yet."""
    return os.path.abspath(environ.get("BITFUSION_POOL_DIR") or DEFAULT)


def unreadable(folder: str, why: object) -> PoolUnreadable:
    """The error for a pool that cannot be used; `str()` of it is the client's `Error:` line."""
    text = getattr(why, "strerror", None) or str(why)
    return PoolUnreadable("", f"pool ledger {folder}/{LEDGER} is unreadable: {text}")


def ensure_folder(folder: str, mode: int = 0o777, group: int = -1) -> None:
    """Make the folder and what must be in it; leaves an existing one's permissions alone. Raises OSError."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        mode = os.stat(folder).st_mode & 0o7777
    except FileNotFoundError:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.mkdir(folder)
        _give(folder, mode, group)
    else:
        _give(folder, mode, group)
    for name in SUBFOLDERS:
        path = f"{folder}/{name}"
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        _give(path, mode, group)


def _give(path: str, mode: int, group: int) -> None:
    if group != -1:
        os.chown(path, -1, group)
    os.chmod(path, mode)


def file_mode(folder: str) -> int:
    """Permission bits of files in the pool: those of its folder, nothing executable."""
    return os.stat(folder).st_mode & 0o666
