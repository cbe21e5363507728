"""The folder (mode 0700) in which one proxy keeps its sockets: kernel, launcher and magic connect there.

Made by the proxy before it forks the supervisor, and again before each start of a kernel if it was cleaned
away; removed by whichever of the two ends last. Paths of unix sockets may have 107 bytes, so the folder lies
in `$XDG_RUNTIME_DIR` or `/tmp`, whichever works.
"""

from __future__ import annotations

import os
import stat

PREFIX = "bitfusion-kernel-"
LONGEST_SOCKET_NAME = 24
_LONGEST_PATH = 107


def create(environ: os._Environ[str] | dict[str, str]) -> str:
    """Make the folder and return its path. Raises OSError, in words, if no place allows one."""
    problems = []
    for parent in (environ.get("XDG_RUNTIME_DIR"), "/tmp"):
        if not parent:
            continue
        path = os.path.join(parent, f"{PREFIX}{os.getuid()}-{os.urandom(4).hex()}")
        try:
            if len(path.encode()) + 1 + LONGEST_SOCKET_NAME > _LONGEST_PATH:
                problems.append(f"{parent} is too long a path for unix sockets")
                continue
            os.mkdir(path, 0o700)
        except UnicodeEncodeError:
            problems.append(f"{parent!a} is no UTF-8")  # zmq's addresses are
        except OSError as error:
            problems.append(f"{parent}: {error.strerror}")
        else:
            return path
    raise OSError("; ".join(problems))


def restore(path: str, environ: os._Environ[str] | dict[str, str]) -> str:
    """Return `path` if it is the proxy's folder, made again if it is gone; otherwise `create` another.

    `path` is what `create` returned, or empty where it could not make one.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return path if _is_private(path) else create(environ)
    except OSError:
        return create(environ)
    return path


def _is_private(path: str) -> bool:
    """Whether this is what `create` makes, and not what somebody has put in its place since."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def remove(path: str) -> None:
    """Remove the folder with everything in it (sockets and one connection file; never subfolders)."""
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        try:
            os.unlink(os.path.join(path, name))
        except OSError:
            pass
    try:
        os.rmdir(path)
    except OSError:
        pass
