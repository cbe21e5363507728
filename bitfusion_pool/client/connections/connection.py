"""A connection of a command to a service, whatever carries it: its greeting, messages, time limits."""

from __future__ import annotations

import time

from bitfusion_client.command.log_output import VERSION as CLIENT_VERSION
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_client.typed_lines import InvalidMessage
from bitfusion_client.version import PACKAGE, VERSION
from bitfusion_pool.client.connections.service_errors import gone, nonsense, refused, slow
from bitfusion_pool.messages.from_client import Hello
from bitfusion_pool.messages.from_service import Refused, Welcome, parse_from_service
from bitfusion_pool.messages.lines import LineBuffer, LineTooLong
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, PROTOCOL
from bitfusion_pool.messages.refusal_codes import SERVICE_ENDS

if TYPE_CHECKING:
    from bitfusion_pool.messages.message import Message

_LONGEST_VERSION = 40  # characters
ANSWER_S = 3.0  # as `timeout: 3s` in the real client's configuration


class Connection:
    """What unix sockets and TLS have in common.

    Attributes:
        place: The socket's path, or host and port.
        segment: As in `Hello`.
    """

    def __init__(self, place: str, answer_s: float = ANSWER_S) -> None:
        self.place = place
        self.answer_s = answer_s
        self.segment = 0
        self._buffer = LineBuffer(LONGEST_FROM_SERVICE)
        self._lines: list[bytes] = []

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            ServiceAway: The service has gone, or does not read.
        """
        raise NotImplementedError

    def receive(self, seconds: float | None = None) -> Message:
        """The next message; those of an unknown type are passed over.

        Args:
            seconds: How long to wait for it, not at all below 0; by default as long as for any answer.

        Raises:
            ServiceAway: It did not come in time, or the service has gone, or ends.
            PoolUnreadable: What came is no message.
        """
        seconds = self.answer_s if seconds is None else max(0.0, seconds)
        message = self.receive_within(seconds)
        if message is None:
            raise slow(self.place, seconds)
        return message

    def receive_within(self, seconds: float) -> Message | None:
        """The same; None if it did not come in time."""
        message = self.next_message(seconds)
        if isinstance(message, Refused) and message.code == SERVICE_ENDS:
            raise gone(self.place, message.message)
        return message

    def next_message(self, seconds: float) -> Message | None:
        """The same, where the service's word that it ends is a message like others."""
        until = time.monotonic() + seconds
        while True:
            while not self._lines:
                if not self._is_readable(max(0.0, until - time.monotonic())):
                    return None
                self._read()
            try:
                message = parse_from_service(self._lines.pop(0))
            except InvalidMessage as error:
                raise nonsense(self.place, error) from None
            if message is not None:
                return message

    def take_descriptor(self) -> int:
        """The descriptor that came with the last message; -1 if there was none."""
        return -1

    def close(self) -> None:
        """Hang up."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Hang up because it is of no use any more. The service must not take that for the client's end."""
        self.close()

    def _is_readable(self, seconds: float) -> bool:
        """Wait until bytes have come, or the end."""
        raise NotImplementedError

    def _read(self) -> None:
        """Read what has come. Raises ServiceAway at the end."""
        raise NotImplementedError

    def _take(self, data: bytes) -> None:
        if not data:
            raise gone(self.place, "it ended the connection")
        try:
            self._lines += self._buffer.feed(data)
        except LineTooLong as error:
            raise nonsense(self.place, error) from None

    def _raise_last_words(self) -> None:
        """What it said before it hung up says more than the hanging up."""
        from bitfusion_client.errors import PoolUnreadable

        try:
            message = self.receive(0)
        except PoolUnreadable:
            return
        if isinstance(message, Refused):
            raise refused(self.place, message)


def greet(connection: Connection, token: str = "") -> Welcome:
    """What the service says of itself on a new connection; a unix socket tells it who this is, else `token`.

    Raises:
        ServiceAway: It says nothing.
        PoolUnreadable: It does not take this client, or is none.
        TokenExpired: It says so.
    """
    connection.send(Hello(PROTOCOL, f"bitfusion {CLIENT_VERSION}", token, connection.segment))
    answer = connection.receive()
    if isinstance(answer, Refused):
        raise refused(connection.place, answer)
    if not isinstance(answer, Welcome):
        raise nonsense(connection.place, f"it answered with {answer.TYPE}")
    if answer.protocol != PROTOCOL:
        raise nonsense(connection.place, f"it speaks version {answer.protocol}, this client {PROTOCOL}")
    return answer


def software_of(welcome: Welcome) -> str:
    """Which version of the package the service runs, for people; that of this command where it is another."""
    if not welcome.software:
        return f"not told, so a version before {VERSION}; this command is of {VERSION}"
    shown = f"{PACKAGE} {one_line(welcome.software, _LONGEST_VERSION)}"
    return shown if welcome.software == VERSION else f"{shown}; this command is of {VERSION}"
