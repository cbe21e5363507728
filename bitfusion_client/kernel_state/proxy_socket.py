"""Where the proxy of a kernel listens for processes of its user, found by the kernel's connection file.

The private folder's name is made from the key in that file: who may read the one finds the other.
"""

from __future__ import annotations

import os
import socket
import struct
import time

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "proxy"
"""Of the socket, in the folder."""
SOCKET_VARIABLE = "BITFUSION_KERNEL_SOCKET"
"""Its path, in the environment of a kernel and of `bitfusion run` above it."""

PREFIX = "bitfusion-proxy-"
"""Of the folder. Without `kernel-`: programs search the path of a connection file for `kernel-(.*).json`."""

_LONGEST_CONNECTION_FILE = 65536
_PAUSE = 0.01
_FILE_NAMES = ("kernel-", ".json")


class NoKernel(Exception):
    """Nothing is known of such a kernel. The text says why, for a person."""


def folders(environ: Mapping[str, str], key: bytes) -> list[str]:
    """Where the private folder of the kernel with this key can be, the likely one first.

    Without a key nobody knows it, and the paths are new ones each time.
    """
    name = f"{PREFIX}{os.getuid()}-{_hash(key) if key else os.urandom(4).hex()}"
    return [os.path.join(parent, name) for parent in (environ.get("XDG_RUNTIME_DIR"), "/tmp") if parent]


def _hash(key: bytes) -> str:
    import hmac

    return hmac.digest(key, b"bitfusion-kernel folder", "sha256").hex()[:16]


def connect(path: str, seconds: float) -> socket.socket:
    """A connection to the proxy that listens at this path; `seconds` is its time limit, for a start.

    Where the folder was removed, as that of a user who logs out, the proxy still listens by name.

    Raises:
        OSError: No proxy of this user listens there.
    """
    connection = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + seconds
    try:
        connection.settimeout(seconds)
        try:
            _connect(connection, path, deadline)
        except (FileNotFoundError, ConnectionRefusedError):
            _connect(connection, "\0" + path, deadline)
        if not is_ours(connection):
            raise PermissionError("another user has already taken the name")
    except OSError:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, address: str, deadline: float) -> None:
    while True:
        try:
            connection.connect(address)
        except BlockingIOError:  # many others connect just now, and a unix socket tells that at once
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(_PAUSE)
        else:
            return


def is_ours(peer: socket.socket) -> bool:
    """Whether the process at the other end is this user's, or root's."""
    said = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", said)[1] in (os.getuid(), 0)


def connection_file(kernel_id: str, runtime_folder: str) -> str:
    """Where Jupyter keeps the connection file of the kernel with this id.

    `runtime_folder` is what `jupyter --runtime-dir` prints and `jupyter_core.paths` knows.
    Raises NoKernel: the id is none, as one that leads elsewhere.
    """
    if not kernel_id or not all(letter.isalnum() or letter in "-_" for letter in kernel_id):
        raise NoKernel(f"{kernel_id!r} is not a kernel id: use letters, digits, - and _ only")
    return os.path.join(runtime_folder, kernel_id.join(_FILE_NAMES))


def kernel_id(path: str) -> str | None:
    """The id that the name of a connection file tells; None if it is called otherwise."""
    name = os.path.basename(path)
    begin, end = _FILE_NAMES
    inside = name[len(begin) : -len(end)]
    return inside if inside and name == inside.join(_FILE_NAMES) else None


def read_key(path: str) -> bytes:
    """The key in a connection file. Raises NoKernel: it has none, or cannot be read."""
    import json

    try:
        with open(path, "rb") as file:
            key = json.loads(file.read(_LONGEST_CONNECTION_FILE))["key"]
    except OSError as error:
        raise NoKernel(f"connection file {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NoKernel(f"connection file {path} is not valid: it has no key") from None
    if not isinstance(key, str) or not key:
        raise NoKernel(f"connection file {path} has an empty key, which cannot identify a kernel")
    return key.encode()
