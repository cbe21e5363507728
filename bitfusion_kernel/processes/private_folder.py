"""The folder (mode 0700) in which one proxy keeps its sockets: kernel, launcher and magic connect there.

Made by the proxy before it forks the supervisor; removed by whichever of the two ends last. Paths of unix
sockets may have 107 bytes, so the folder lies in `$XDG_RUNTIME_DIR` or `/tmp`, whichever works.
"""

from __future__ import annotations

import os

PREFIX = "bitfusion-kernel-"
LONGEST_SOCKET_NAME = 24
_LONGEST_PATH = 107


def create(environ: os._Environ[str] | dict[str, str]) -> str:
    """Make the folder and return its path. Raises OSError if no place allows one."""
    error: OSError | None = None
    for parent in (environ.get("XDG_RUNTIME_DIR"), "/tmp"):
        if not parent:
            continue
        path = os.path.join(parent, f"{PREFIX}{os.getuid()}-{os.urandom(4).hex()}")
        if len(path.encode()) + 1 + LONGEST_SOCKET_NAME > _LONGEST_PATH:
            error = OSError(f"{parent} is too long a path for unix sockets")
            continue
        try:
            os.mkdir(path, 0o700)
        except OSError as failed:
            error = failed
        else:
            return path
    raise error or OSError("no folder for sockets")


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
