"""The connection of a command to a service on this machine: a unix socket.

Uses the C modules: `socket` and `json` cost as much as the rest of a `bitfusion run` together.
"""

from __future__ import annotations

import os
import time

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import words_of
from bitfusion_pool.client.connections.connection import ANSWER_S, Connection
from bitfusion_pool.client.connections.one_way import say
from bitfusion_pool.client.connections.service_errors import OWN_INSTEAD, ServiceAway, gone, slow

if TYPE_CHECKING:
    import socket as _socket

    from bitfusion_pool.messages.message import Message
else:
    import _socket

_AT_ONCE = 1 << 16
_MICROSECONDS = 1_000_000


class ServiceConnection(Connection):
    """One connection. A descriptor that the service passes waits for `take_descriptor`.

    Raises:
        ServiceAway: Nobody listens at the socket, or not in time.
        PoolUnreadable: This user may not connect, or it is no socket's path.
    """

    def __init__(self, path: str) -> None:
        from select import POLLIN, poll

        super().__init__(path)
        self._descriptors: list[int] = []
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            # a limit of the system's: with one of Python's, a full queue of connections would be an error
            self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _timeval(ANSWER_S))
            self._connect(path)
        except OSError as error:
            self._socket.close()
            raise _not_connected(path, error) from None
        self._poll = poll()
        self._poll.register(self._socket.fileno(), POLLIN)

    def _connect(self, path: str) -> None:
        """Connect, also where the queue of connections is full and a signal comes meanwhile.

        Python takes a call that a signal has interrupted for one that goes on by itself, as TCP's do, and
        returns. At a unix socket nothing goes on.
        """
        from errno import EAGAIN, ENOTCONN

        until = time.monotonic() + ANSWER_S
        while True:
            self._socket.connect(path)
            try:
                self._socket.getpeername()
            except OSError as error:
                if error.errno != ENOTCONN:
                    raise
            else:
                return
            if time.monotonic() >= until:
                raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))

    def send(self, message: Message) -> None:
        """See `Connection`."""
        data = message.format()
        try:
            while data:
                data = data[self._socket.send(data, _socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            raise slow(self.place, ANSWER_S) from None
        except OSError as error:
            self._raise_last_words()
            raise gone(self.place, error) from None

    def say(self, message: Message) -> bool:
        """Send what has no answer, without waiting; whether it is on its way."""
        try:
            return say(self._socket, message)
        except OSError:
            return False

    def take_descriptor(self) -> int:
        """See `Connection`."""
        found = self._descriptors.pop(0) if self._descriptors else -1
        self._close_descriptors()  # a lease has one
        return found

    def close(self) -> None:
        """Hang up. The service takes the request that waits out of its queue."""
        self._socket.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for fd in self._descriptors:
            os.close(fd)
        self._descriptors.clear()

    def _is_readable(self, seconds: float) -> bool:
        return bool(self._poll.poll(seconds * 1000))

    def _read(self) -> None:
        try:
            flags = _socket.MSG_CMSG_CLOEXEC
            data, extra, _, _ = self._socket.recvmsg(_AT_ONCE, _socket.CMSG_SPACE(4), flags)
        except OSError as error:
            raise gone(self.place, error) from None
        for level, kind, content in extra:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                whole = len(content) - len(content) % 4
                self._descriptors += memoryview(content[:whole]).cast("i").tolist()
        self._take(data)


def _not_connected(path: str, error: OSError) -> PoolUnreadable:
    from errno import EACCES, EPERM

    if isinstance(error, BlockingIOError):
        return slow(path, ANSWER_S)
    if error.errno in (EACCES, EPERM):
        return PoolUnreadable(
            "",
            f"pool service at {path} is not for you: {words_of(error)}",
            f"ask this machine's administrator for access, or {OWN_INSTEAD}",
        )
    if error.errno is None:
        return PoolUnreadable(
            "",
            f"pool service cannot be at {path}: {words_of(error)}",
            f"correct BITFUSION_POOL, or {OWN_INSTEAD}",
        )
    return ServiceAway(
        "",
        f"pool service at {path} does not run: {words_of(error)}",
        f"ask this machine's administrator to start it, or {OWN_INSTEAD}",
    )


def _timeval(seconds: float) -> bytes:
    from _struct import pack

    return pack("ll", int(seconds), int(seconds % 1 * _MICROSECONDS))
