"""The bytes of one connection, in and out without waiting, on a unix socket."""

from __future__ import annotations

import socket
from collections.abc import Callable

READ_AT_ONCE = 16 << 10  # bytes


class LocalStream:
    """A connected unix socket, which passes descriptors; `tls_stream.TlsStream` has the same methods.

    They raise OSError where the connection is broken.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected

    def fileno(self) -> int:
        """For the event loop."""
        return self._socket.fileno()

    @property
    def has_more(self) -> bool:
        """Whether something has come of which the socket tells nothing any more."""
        return False

    def receive(self) -> bytes:
        """What has come; empty at the end. Raises BlockingIOError if there is nothing yet."""
        return self._socket.recv(READ_AT_ONCE)

    def send(self, data: bytes, fd: int) -> int:
        """Send some of the data, and a descriptor with its first byte (-1: none); returns how many bytes.

        Raises BlockingIOError if nothing can be sent now.
        """
        return socket.send_fds(self._socket, [data], [fd] if fd >= 0 else [])

    def close(self, on_gone: Callable[[], None] | None = None) -> None:
        """End the connection; what was sent before still arrives.

        Args:
            on_gone: Called if the other side is seen to end it in order, too: later, once, and perhaps never.
                Not here: who is at a unix socket, or has gone, is known by the lease lock.
        """
        self._socket.close()
