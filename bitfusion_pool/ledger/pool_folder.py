"""Where the pool keeps its files, and who may write there: the folder, its permissions and subfolders.

There is one folder a machine (its users share the GPUs), unless BITFUSION_POOL_DIR names another. Its
permission bits apply to everything in it: 0777 lets every user take GPUs, 0770 the members of its group. It
has no sticky bit: with one, Linux (fs.protected_regular) keeps users from opening each other's SQLite files.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_FOLDER = "/var/tmp/bitfusion-pool"
DATABASE = "ledger.db"
CONFIGURATION = "pool.toml"
LOCKS = "locks"
WAKE_UPS = "bells"  # the folders of existing pools have this name
SUBFOLDERS = (LOCKS, WAKE_UPS)


def pool_folder(environ: Mapping[str, str]) -> str:
    """The pool's folder; it may not exist yet."""
    return os.path.abspath(environ.get("BITFUSION_POOL_DIR") or DEFAULT_FOLDER)


def configuration_path(folder: str, environ: Mapping[str, str]) -> str:
    """The file that describes the pool in `folder`; it need not exist unless the environment names it."""
    return environ.get("BITFUSION_POOL_CONFIG") or f"{folder}/{CONFIGURATION}"


def file_version(path: str) -> str:
    """A text that changes whenever the file does; empty if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


def unreadable(folder: str, why: object) -> PoolUnreadable:
    """The error for a pool whose files cannot be used; its text is the client's `Error:` line."""
    text = getattr(why, "strerror", None) or str(why)
    return PoolUnreadable("", f"pool ledger {folder}/{DATABASE} is unreadable: {text}")


def ensure_folder(folder: str, mode: int = 0o777, group: int = -1) -> None:
    """Create the folder and its subfolders. Leaves the permissions of existing ones alone.

    Raises:
        OSError: One of them cannot be created.
    """
    try:
        os.mkdir(folder)
    except FileExistsError:
        mode = os.stat(folder).st_mode & 0o7777
    except FileNotFoundError:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.mkdir(folder)
        set_permissions(folder, mode, group)
    else:
        set_permissions(folder, mode, group)
    for name in SUBFOLDERS:
        path = f"{folder}/{name}"
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        set_permissions(path, mode, group)


def set_permissions(path: str, mode: int, group: int = -1) -> None:
    """Set the group (-1 leaves it) and the permission bits, whatever the umask. Raises OSError."""
    if group != -1:
        os.chown(path, -1, group)
    os.chmod(path, mode)


def file_mode(folder: str) -> int:
    """Permission bits of files in the pool: those of its folder, nothing executable."""
    return os.stat(folder).st_mode & 0o666
