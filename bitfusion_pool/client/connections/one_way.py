"""A connection to this machine's service for messages that have no answer. Nothing here waits.

For a program under a lease whose connection ended with the service before this one: the lease needs none, but
what is told meanwhile does. What the service says here, which is its greeting, is passed over.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.messages.from_client import Hello
from bitfusion_pool.messages.message import PROTOCOL

if TYPE_CHECKING:
    import socket as _socket

    from bitfusion_pool.messages.message import Message
else:
    import _socket

_AT_ONCE = 1 << 18


class OneWay:
    """To the service at the socket `path`; connects when something is said."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: _socket.socket | None = None

    def say(self, message: Message) -> bool:
        """Whether it is on its way; if not, the next one tries a new connection."""
        try:
            if self._socket is None:
                self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
                self._socket.setblocking(False)
                self._socket.connect(self._path)
                say(self._socket, Hello(PROTOCOL, "bitfusion run"))
            elif not self._is_open():
                raise BrokenPipeError
            if say(self._socket, message):
                return True
        except OSError:
            pass  # there is no service now, or it has no time
        self.close()
        return False

    def _is_open(self) -> bool:
        assert self._socket is not None
        try:
            return bool(self._socket.recv(_AT_ONCE))
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def say(connection: _socket.socket, message: Message) -> bool:
    """Send a short message whole, or nothing of it. Raises OSError where the connection has ended."""
    data = message.format()
    try:
        return connection.send(data, _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT) == len(data)
    except BlockingIOError:
        return False
