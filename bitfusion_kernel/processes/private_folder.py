"""The folder (mode 0700) in which one kernel keeps its sockets: kernel, launcher, magic, and the next proxy.

Its name is made from the key in Jupyter's connection file, which a restart keeps: so the next proxy finds the
supervisor that waits for it, and whoever knows the key finds the state. Whoever may use it holds its lock;
proxy and supervisor share that, and whichever of them ends last removes the folder. It is made again before
each start of a kernel if it was cleaned away. Paths of unix sockets may have 107 bytes, so the folder lies in
`$XDG_RUNTIME_DIR` or `/tmp`, whichever works.
"""

from __future__ import annotations

import os
import stat

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.proxy_socket import PREFIX as PREFIX
from bitfusion_client.kernel_state.proxy_socket import folders

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_SOCKET_NAME = 24
_LONGEST_PATH = 107
_TRIES = 10
NO_LOCK = -1


def claim(environ: Mapping[str, str], key: bytes) -> tuple[str, int | None]:
    """The folder of the kernel with this key, and the lock on it; None if another process holds that.

    Called by a proxy when it starts. What a dead one has left there is removed. NO_LOCK: it is a folder that
    no other proxy will find, as there is no key, or no place for that of the key.

    Raises:
        OSError: In words, if no place allows one.
    """
    paths = folders(environ, key) if key else []
    for path in sorted(paths, key=lambda path: not os.path.lexists(path)):
        try:
            held = _make_and_lock(path)
        except OSError:
            continue
        if held is not None:
            _empty(path)
        return path, held
    return create(environ), NO_LOCK


def create(environ: Mapping[str, str]) -> str:
    """Make a folder that nobody knows of and return its path. Raises OSError, in words, if it cannot be."""
    problems = []
    for path in folders(environ, b""):
        parent = os.path.dirname(path)
        try:
            if not _is_possible(path):
                problems.append(f"{parent} is too long a path for unix sockets")
                continue
            os.mkdir(path, 0o700)
        except UnicodeEncodeError:
            problems.append(f"{parent!a} is not UTF-8")  # zmq's addresses are
        except OSError as error:
            problems.append(f"{parent}: {error.strerror}")
        else:
            return path
    raise OSError("; ".join(problems))


def restore(path: str, environ: Mapping[str, str]) -> str:
    """Return `path` if it is the proxy's folder, made again if it is gone; otherwise `create` another.

    `path` is what `claim` returned, or empty where it could not make one.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return path if _is_private(path) else create(environ)
    except OSError:
        return create(environ)
    return path


def remove(path: str) -> None:
    """Remove the folder with everything in it (sockets and one connection file; never subfolders)."""
    _empty(path)
    try:
        os.rmdir(path)
    except OSError:
        pass


def _make_and_lock(path: str) -> int | None:
    """As `lock`, of a folder that need not exist. Raises OSError: it can't, or is no folder of ours."""
    if not _is_possible(path):
        raise OSError(path)
    for _ in range(_TRIES):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not _is_private(path):
                raise
        try:
            return lock(path)
        except FileNotFoundError:  # removed meanwhile
            continue
    raise OSError(path)


def _is_possible(path: str) -> bool:
    try:
        return len(path.encode()) + 1 + LONGEST_SOCKET_NAME <= _LONGEST_PATH
    except UnicodeEncodeError:
        return False


def _is_private(path: str) -> bool:
    """Whether this is what `claim` makes, and not what somebody has put in its place since."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def lock(path: str) -> int | None:
    """The descriptor whose lock on the folder is ours; None if another has it. Raises OSError: it is gone."""
    import fcntl

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    raise FileNotFoundError(path)


def _empty(path: str) -> None:
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        try:
            os.unlink(os.path.join(path, name))
        except OSError:
            pass
