"""Where the pool keeps its files: a folder of one user, which nobody else may enter.

Simulated GPUs are nobody's property, so every user has a pool of their own and meets nobody else's files.
"""

from __future__ import annotations

import os
import stat

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.own_files import NotOurs, home_folder, trusted_path

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER_VARIABLE = "BITFUSION_POOL_DIR"
STATE_VARIABLE = "XDG_STATE_HOME"
NAME = "bitfusion-pool"  # below the state folder
DATABASE = "ledger.db"
DATABASE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
CONFIGURATION = "pool.toml"
LOCKS = "locks"
WAKE_UPS = "bells"  # the folders of existing pools have this name
SUBFOLDERS = (LOCKS, WAKE_UPS)
_DRAFT_DIGITS = 16


def pool_folder(environ: Mapping[str, str]) -> str:
    """The pool's folder; it may not exist yet."""
    named = environ.get(FOLDER_VARIABLE)
    return os.path.abspath(named) if named else default_folder(environ)


def default_folder(environ: Mapping[str, str]) -> str:
    """Where the pool is without BITFUSION_POOL_DIR: below XDG_STATE_HOME, by default ~/.local/state."""
    state = environ.get(STATE_VARIABLE, "")
    if not state.startswith("/"):  # as the XDG specification has it
        state = f"{home_folder(environ).rstrip('/')}/.local/state"
    return os.path.normpath(f"{state}/{NAME}")


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


def ensure_folder(folder: str, environ: Mapping[str, str]) -> str:
    """Make sure that the folder exists and is this user's alone; returns its path without symbolic links.

    The folder in the default place is closed to others again if something opened it: Kubernetes makes all
    that a volume contains writable for the volume's group whenever a pod starts.

    Raises:
        NotOurs: It is another user's, or others may write to it.
        OSError: It cannot be created.
    """
    path = trusted_path(folder)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        _make(path)
        found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, os.strerror(20), path)
    if found.st_uid != os.geteuid():
        from bitfusion_pool.own_files import user_name

        raise NotOurs(path, f"belongs to {user_name(found.st_uid)}")
    if found.st_mode & 0o022:
        if folder != default_folder(environ):
            raise NotOurs(path, f"can be changed by others (mode {stat.S_IMODE(found.st_mode):04o})")
        os.chmod(path, 0o700)
    return path


def ensure_subfolder(folder: str, name: str) -> None:
    """Make `locks` or `bells`, also where a cleaner of old files has removed it. Raises OSError."""
    path = f"{folder}/{name}"
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        _make(path)
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise NotOurs(path, "is not a folder of yours")


def remove_leftover_drafts(folder: str, older_than_s: float = 60.0) -> None:
    """Delete the drafts of files that a command was killed in writing. Raises OSError."""
    import time

    for name in os.listdir(folder):
        begin, _, digits = name.rpartition(".")
        is_draft = begin in (DATABASE, CONFIGURATION) and len(digits) == _DRAFT_DIGITS
        if is_draft and os.lstat(f"{folder}/{name}").st_mtime < time.time() - older_than_s:
            os.unlink(f"{folder}/{name}")


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another command was faster
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return _make(path)
    os.chmod(path, 0o700)  # whatever the umask
    return None
