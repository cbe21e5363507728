"""One connection between proxy, supervisor and launcher: sends and receives messages as JSON lines.

Standard library only, as all three use it. Sending never blocks: what the peer does not take waits in
memory, and messages sent as `droppable` (lines of output) are dropped while more than `MAX_BACKLOG` bytes
wait, so a peer that has stopped reading can't make the sender grow.
"""

from __future__ import annotations

import socket

from bitfusion_kernel.processes.messages import InvalidMessage, Message, parse

MAX_BACKLOG = 1 << 20


class MessageConnection:
    """Both directions of a connected stream socket. Not thread-safe: each process uses it from one loop."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._incoming = b""
        self._outgoing = b""
        self.closed = False
        """Whether nothing more will arrive: the peer has gone, or has sent what is no message."""

    def fileno(self) -> int:
        """For poll()."""
        return self._connection.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether poll() should also wait for writability."""
        return bool(self._outgoing) and not self.closed

    def send(self, message: Message, *, droppable: bool = False) -> None:
        """Queue one message and send what the peer takes now. `receive` notices a peer that has gone."""
        if self.closed or (droppable and len(self._outgoing) > MAX_BACKLOG):
            return
        self._outgoing += message.format()
        self.flush()

    def flush(self) -> None:
        """Send as much of the backlog as the peer takes without blocking."""
        while self._outgoing:
            try:
                sent = self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._outgoing = b""  # the reading side reports the end
                return
            self._outgoing = self._outgoing[sent:]

    def receive(self) -> list[Message]:
        """All messages that have arrived whole; sets `closed` when the peer has gone.

        Messages of an unknown type are passed over. A line that is no message ends the connection, because
        whatever follows it can't be trusted; every process ends what depends on a closed connection.
        """
        while True:
            try:
                chunk = self._connection.recv(65536)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
                break
            self._incoming += chunk
        *lines, self._incoming = self._incoming.split(b"\n")
        messages = []
        for line in lines:
            try:
                message = parse(line)
            except InvalidMessage:
                self._shut_down()
                break
            if message is not None:
                messages.append(message)
        return messages

    def _shut_down(self) -> None:
        self.closed = True
        self._incoming = self._outgoing = b""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster

    def close(self) -> None:
        """Close the connection; further sends are ignored."""
        self.closed = True
        self._connection.close()
