"""The bytes of one connection, in and out without waiting, on a socket of any kind."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

READ_AT_ONCE = 16 << 10  # bytes


class Stream(Protocol):
    """A connected socket that does not block. Methods raise OSError where the connection is broken."""

    def fileno(self) -> int:
        """For the event loop."""

    @property
    def has_more(self) -> bool:
        """Whether something has come of which the socket tells nothing any more."""

    def receive(self) -> bytes:
        """What has come; empty at the end. Raises BlockingIOError if there is nothing yet."""

    def send(self, data: bytes, fd: int) -> int:
        """Send some of the data, and a descriptor with its first byte (-1: none); returns how many bytes.

        Raises BlockingIOError if nothing can be sent now.
        """

    def close(self, on_gone: Callable[[], None] | None = None) -> None:
        """End the connection; what was sent before still arrives.

        Args:
            on_gone: Called if the other side is seen to end it in order, too: later, once, and perhaps never.
        """


class LocalStream:
    """A unix socket, which passes descriptors."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def fileno(self) -> int:
        """See `Stream`."""
        return self._socket.fileno()

    @property
    def has_more(self) -> bool:
        """See `Stream`."""
        return False

    def receive(self) -> bytes:
        """See `Stream`."""
        return self._socket.recv(READ_AT_ONCE)

    def send(self, data: bytes, fd: int) -> int:
        """See `Stream`."""
        return socket.send_fds(self._socket, [data], [fd] if fd >= 0 else [])

    def close(self, on_gone: Callable[[], None] | None = None) -> None:
        """See `Stream`. Nobody asks: who is at a unix socket, or has gone, is known by the lease lock."""
        self._socket.close()
