"""One connection of any kind: lines in, lines and descriptors out, everything bounded.

Lines are read only while none is left to handle and nothing is left to send, so that a client who sends much
or reads nothing fills its own buffers, not ours.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bitfusion_pool.messages.lines import LineBuffer, LineTooLong
from bitfusion_pool.messages.message import LONGEST_FROM_CLIENT
from bitfusion_pool.service.connections.stream import LocalStream
from bitfusion_pool.service.connections.tls_stream import TlsStream

MOST_UNSENT = 1 << 20  # bytes
SLOW_S = 10.0  # so long may a client read nothing


class LineHandler(Protocol):
    """What a connection tells."""

    def line(self, line: bytes) -> None:
        """One line has come. Called in turns."""

    def line_too_long(self) -> None:
        """More came than a line may have; nothing more is read."""

    def closed(self, by_client: bool) -> bool:
        """The connection has ended; called once. Returns whether `gone` matters.

        `by_client`: the other side has ended it in order. Otherwise we have, or it broke, and the client may
        not know.
        """

    def gone(self) -> None:
        """The other side has ended it in order, too. Called once after `closed`, or never."""


class ClientConnection:
    """One client's connection. Made by `process`; belongs to the event loop's thread.

    Attributes:
        handler: Told what happens; set before `start`.
    """

    handler: LineHandler

    def __init__(
        self,
        stream: LocalStream | TlsStream,
        loop: asyncio.AbstractEventLoop,
        has_lines: Callable[[ClientConnection], None],
    ) -> None:
        self._stream = stream
        self._fd = stream.fileno()
        self._loop = loop
        self._has_lines = has_lines
        self._buffer = LineBuffer(LONGEST_FROM_CLIENT)
        self._lines: deque[bytes] = deque()
        self._unsent: deque[tuple[bytes, int]] = deque()  # a descriptor belongs to the connection; -1: none
        self._unsent_bytes = 0
        self._slow: asyncio.TimerHandle | None = None
        self._is_reading = False
        self._is_too_long = False
        self._has_turn = False
        self._ends_after_sending = False
        self.is_closed = False

    def start(self) -> None:
        """Read from now on."""
        self._read_if_idle()

    @property
    def is_behind(self) -> bool:
        """Whether the client has not read everything yet: what can wait is then not sent."""
        return bool(self._unsent)

    def send(self, data: bytes, fd: int = -1) -> None:
        """Send a line, and with it a descriptor, which is closed afterwards in any case."""
        if self.is_closed or self._ends_after_sending:
            _close_fd(fd)
            return
        self._unsent.append((data, fd))
        self._unsent_bytes += len(data)
        if len(self._unsent) == 1:
            self._write()
        if self._unsent_bytes > MOST_UNSENT:
            self.close()

    def end(self) -> None:
        """Close once everything is sent, or after a while."""
        self._ends_after_sending = True
        self._lines.clear()
        self._stop_reading()
        if not self._unsent:
            self.close()

    def close(self) -> None:
        """Close at once."""
        self._close(by_client=False)

    def _close(self, by_client: bool) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._stop_reading()
        self._loop.remove_writer(self._fd)
        if self._slow is not None:
            self._slow.cancel()
        for _, fd in self._unsent:
            _close_fd(fd)
        self._unsent.clear()
        self._lines.clear()
        gone_matters = self.handler.closed(by_client)
        self._stream.close(self.handler.gone if gone_matters else None)

    # --- reading ---------------------------------------------------------------------------------------

    def handle_one(self) -> bool:
        """Handle one line; whether there are more. Called by `MessageTurns`."""
        if not self._unsent:
            if self._lines:
                self.handler.line(self._lines.popleft())
            elif self._is_too_long and not self._ends_after_sending:
                self.handler.line_too_long()
        if self._has_more and not self._unsent:
            return True
        # else `_all_sent` asks for the next turn
        self._has_turn = False
        self._read_if_idle()
        return False

    @property
    def _has_more(self) -> bool:
        return bool(self._lines or self._is_too_long) and not self._ends_after_sending and not self.is_closed

    def _read_if_idle(self) -> None:
        busy = self._lines or self._unsent or self._is_too_long or self._ends_after_sending
        if not (busy or self._is_reading or self.is_closed):
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)
            if self._stream.has_more:
                self._loop.call_soon(self._readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        if not self._is_reading:
            return
        try:
            data = self._stream.receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # the network broke it, or what comes is not what the client sent
            self.close()
            return
        if not data:
            self._close(by_client=True)
            return
        try:
            self._lines.extend(self._buffer.feed(data))
        except LineTooLong:
            self._is_too_long = True
        if self._lines or self._is_too_long:
            self._stop_reading()
            self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._has_lines(self)

    # --- writing ---------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            while self._unsent:
                data, fd = self._unsent[0]
                sent = self._stream.send(data, fd)
                self._unsent_bytes -= sent
                _close_fd(fd)
                self._unsent[0] = (data[sent:], -1)
                if sent == len(data):
                    self._unsent.popleft()
        except (BlockingIOError, InterruptedError):
            self._wait_for_reader()
            return
        except OSError:  # the network broke it, or too many descriptors are on their way
            self.close()
            return
        self._all_sent()

    def _wait_for_reader(self) -> None:
        self._stop_reading()
        self._loop.add_writer(self._fd, self._write)
        if self._slow is not None:
            self._slow.cancel()
        self._slow = self._loop.call_later(SLOW_S, self.close)

    def _all_sent(self) -> None:
        self._loop.remove_writer(self._fd)
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        if self._ends_after_sending:
            self.close()
        elif self._has_more:
            self._ask_for_turn()
        else:
            self._read_if_idle()


def _close_fd(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
