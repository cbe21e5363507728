"""The connection of a command to a service on this machine: a unix socket, messages in and out, time limits.

Uses the C modules: `socket` and `json` cost as much as the rest of a `bitfusion run` together.
"""

from __future__ import annotations

import os
import time

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.messages.from_service import Refused, parse_from_service
from bitfusion_pool.messages.lines import LineBuffer, LineTooLong
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, InvalidMessage, Message
from bitfusion_pool.messages.refusal_codes import SERVICE_ENDS

if TYPE_CHECKING:
    import socket as _socket
else:
    import _socket

ANSWER_S = 3.0  # as `timeout: 3s` in the real client's configuration
_AT_ONCE = 1 << 16
_MICROSECONDS = 1_000_000

OWN_INSTEAD = "for simulated GPUs of your own set BITFUSION_POOL=own"


class ServiceAway(PoolUnreadable):
    """Nobody answers at the socket, or no longer: the same may succeed once the service runs again."""


class ServiceConnection:
    """One connection. A descriptor that the service passes waits for `take_descriptor`.

    Raises:
        ServiceAway: Nobody listens at the socket, or not in time.
        PoolUnreadable: This user may not connect, or it is no socket's path.
    """

    def __init__(self, path: str) -> None:
        from select import POLLIN, poll

        self.path = path
        self._lines: list[bytes] = []
        self._buffer = LineBuffer(LONGEST_FROM_SERVICE)
        self._descriptors: list[int] = []
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            # a limit of the system's: with one of Python's, a full queue of connections would be an error
            self._socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _timeval(ANSWER_S))
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise _not_connected(path, error) from None
        self._poll = poll()
        self._poll.register(self._socket.fileno(), POLLIN)

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            ServiceAway: The service has gone, or does not read.
        """
        data = message.format()
        try:
            while data:
                data = data[self._socket.send(data, _socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            raise slow(self.path, ANSWER_S) from None
        except OSError as error:
            # what it said before it hung up says more
            self._raise_last_words()
            raise gone(self.path, error) from None

    def receive(self, seconds: float = ANSWER_S) -> Message:
        """The next message; those of an unknown type are passed over.

        Args:
            seconds: How long to wait for it.

        Raises:
            ServiceAway: It did not come in time, or the service has gone.
            PoolUnreadable: What came is no message.
        """
        until = time.monotonic() + seconds
        while True:
            while not self._lines:
                if not self._poll.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise slow(self.path, seconds)
                self._read()
            try:
                message = parse_from_service(self._lines.pop(0))
            except InvalidMessage as error:
                raise nonsense(self.path, error) from None
            if isinstance(message, Refused) and message.code == SERVICE_ENDS:
                raise gone(self.path, message.message)
            if message is not None:
                return message

    def take_descriptor(self) -> int:
        """The descriptor that came with the last message; -1 if there was none."""
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

    def _read(self) -> None:
        try:
            flags = _socket.MSG_CMSG_CLOEXEC
            data, extra, _, _ = self._socket.recvmsg(_AT_ONCE, _socket.CMSG_SPACE(4), flags)
        except OSError as error:
            raise gone(self.path, error) from None
        for level, kind, content in extra:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                whole = len(content) - len(content) % 4
                self._descriptors += memoryview(content[:whole]).cast("i").tolist()
        if not data:
            raise gone(self.path, "it ended the connection")
        try:
            self._lines += self._buffer.feed(data)
        except LineTooLong as error:
            raise nonsense(self.path, error) from None

    def _raise_last_words(self) -> None:
        try:
            message = self.receive(0)
        except PoolUnreadable:
            return
        if isinstance(message, Refused):
            raise refused(self.path, message)


def gone(path: str, why: object) -> ServiceAway:
    """The error for a service that hung up."""
    return ServiceAway(
        "",
        f"pool service at {path} has gone: {_reason(why)}",
        f"try again; if that does not help, ask this machine's administrator to start it, or {OWN_INSTEAD}",
    )


def slow(path: str, seconds: float) -> ServiceAway:
    """The error for a service that says nothing for so long."""
    return ServiceAway(
        "",
        f"pool service at {path} gave no answer in {seconds:g} s",
        f"try again; if that does not help, ask this machine's administrator to look at it, or {OWN_INSTEAD}",
    )


def nonsense(path: str, why: object) -> PoolUnreadable:
    """The error for what is no message."""
    return PoolUnreadable(
        "",
        f"pool service at {path} does not speak as a pool's service does: {why}",
        f"check which program listens there, and BITFUSION_POOL; or {OWN_INSTEAD}",
    )


def refused(path: str, refusal: Refused) -> PoolUnreadable:
    """The error for a service that does not take this client."""
    from bitfusion_client.one_line import one_line

    return PoolUnreadable(
        "",
        f"pool service at {path} refuses this: {one_line(refusal.message)}",
        one_line(refusal.next_step) or f"ask this machine's administrator, or {OWN_INSTEAD}",
    )


def _not_connected(path: str, error: OSError) -> PoolUnreadable:
    from errno import EACCES, EPERM

    if isinstance(error, BlockingIOError):
        return slow(path, ANSWER_S)
    if error.errno in (EACCES, EPERM):
        return PoolUnreadable(
            "",
            f"pool service at {path} is not for you: {_reason(error)}",
            f"ask this machine's administrator for access, or {OWN_INSTEAD}",
        )
    if error.errno is None:
        return PoolUnreadable(
            "",
            f"pool service cannot be at {path}: {_reason(error)}",
            f"correct BITFUSION_POOL, or {OWN_INSTEAD}",
        )
    return ServiceAway(
        "",
        f"pool service at {path} does not run: {_reason(error)}",
        f"ask this machine's administrator to start it, or {OWN_INSTEAD}",
    )


def _reason(why: object) -> str:
    return getattr(why, "strerror", None) or str(why)


def _timeval(seconds: float) -> bytes:
    from _struct import pack

    return pack("ll", int(seconds), int(seconds % 1 * _MICROSECONDS))
