"""A connection of a command to a service: messages in and out, with time limits, whatever carries them."""

from __future__ import annotations

import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.connections.service_errors import gone, nonsense, refused, slow
from bitfusion_pool.messages.from_service import Refused, parse_from_service
from bitfusion_pool.messages.lines import LineBuffer, LineTooLong
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, InvalidMessage
from bitfusion_pool.messages.refusal_codes import SERVICE_ENDS

if TYPE_CHECKING:
    from bitfusion_pool.messages.message import Message

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
