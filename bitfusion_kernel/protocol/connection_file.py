"""Jupyter's connection files: reads the one with the proxy's addresses, writes the one for the kernel."""

from __future__ import annotations

import json
import os
from typing import Any

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class BadConnectionFile(ValueError):
    """The file cannot be read or names no usable addresses. The text is for stderr."""


class CannotListen(Exception):
    """A socket can't be bound to an address of the connection file. The text is for stderr."""


class ConnectionInfo:
    """Addresses and secrets of one kernel's five sockets.

    `fields` is the content of a connection file:
    https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self.transport = str(fields.get("transport", "tcp"))
        self.ip = str(fields.get("ip", "127.0.0.1"))
        self.key = str(fields.get("key", "")).encode()
        self.signature_scheme = str(fields.get("signature_scheme", "hmac-sha256"))
        self.kernel_name = str(fields.get("kernel_name", ""))
        self.curve_publickey = str(fields.get("curve_publickey", "") or "").encode()
        self.curve_secretkey = str(fields.get("curve_secretkey", "") or "").encode()
        self._ports = {channel: int(fields.get(f"{channel}_port", 0)) for channel in CHANNELS}

    def port(self, channel: str) -> int:
        """The port, or the number in the name of the ipc socket, of one of `CHANNELS`."""
        return self._ports[channel]

    def address(self, channel: str) -> str:
        """The zmq endpoint of one of `CHANNELS`."""
        separator = "-" if self.transport == "ipc" else ":"
        return f"{self.transport}://{self.ip}{separator}{self._ports[channel]}"


def read(path: str) -> ConnectionInfo:
    """Read the connection file that Jupyter wrote for the proxy.

    Raises:
        BadConnectionFile: It is missing, damaged, or names no ports.
    """
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        info = ConnectionInfo(fields)
    except OSError as error:
        raise BadConnectionFile(f"connection file {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise BadConnectionFile(f"connection file {path} is not one: {error}") from None
    if not all(fields.get(f"{channel}_port") for channel in CHANNELS):
        raise BadConnectionFile(
            f"connection file {path} names no ports; Jupyter writes them before it starts us"
        )
    return info


def write_private(folder: str, sockets: str, name: str, outer: ConnectionInfo) -> tuple[str, ConnectionInfo]:
    """Write the kernel's own connection file: ipc sockets in the proxy's private folder.

    The key is the proxy's, because messages are relayed with the signature they came with. The file bears the
    name of Jupyter's: programs in cells read the kernel's id from it, to find their notebook.

    Args:
        folder: The private folder (mode 0700).
        sockets: The first part of the names of the sockets. None has a dot, so no file is in their way.
        name: Of the connection file that Jupyter wrote.
        outer: Where Jupyter talks to the proxy.

    Returns:
        The path of the file, and its content.

    Raises:
        OSError: The folder is gone, full or read-only; its `filename` is the folder.
    """
    fields: dict[str, Any] = {
        "transport": "ipc",
        "ip": os.path.join(folder, sockets),
        "key": outer.key.decode(),
        "signature_scheme": outer.signature_scheme,
        "kernel_name": outer.kernel_name,
    }
    fields.update({f"{channel}_port": number for number, channel in enumerate(CHANNELS, start=1)})
    path = os.path.join(folder, name if "." in name else f"{name}.json")
    content = json.dumps(fields)
    try:
        if not _is_written(path, content):
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
            ) as file:
                file.write(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None
    return path, ConnectionInfo(fields)


def _is_written(path: str, content: str) -> bool:
    """Whether the proxy before a restart has written it: then the next kernel may be just reading it."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == content
    except (OSError, ValueError):
        return False
