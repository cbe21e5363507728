"""One JSON object a line over a stream socket: how proxy, supervisor and launcher talk.

Used by all three, so standard library only. Sending never blocks: what the peer does not take waits
in memory, and messages marked `droppable` (output lines) are dropped beyond `MAX_BACKLOG` bytes, so
that a peer that stopped reading can't make the sender grow.
"""

from __future__ import annotations

import json
import socket

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MAX_BACKLOG = 1 << 20


class JsonLines:
    """Both directions of one connection. Not thread-safe: each process uses it from one loop."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._incoming = b""
        self._outgoing = b""
        self.closed = False

    def fileno(self) -> int:
        """For poll()."""
        return self._connection.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether poll() should also wait for writability."""
        return bool(self._outgoing) and not self.closed

    def send(self, message: dict[str, Any], *, droppable: bool = False) -> None:
        """Queue one message and send what the peer takes now. A closed peer is noticed by `receive`."""
        if self.closed or (droppable and len(self._outgoing) > MAX_BACKLOG):
            return
        self._outgoing += json.dumps(message).encode() + b"\n"
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

    def receive(self) -> list[dict[str, Any]]:
        """All messages that have arrived whole; sets `closed` when the peer is gone."""
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
        return [json.loads(line) for line in lines if line]

    def close(self) -> None:
        """Close the connection; further sends are ignored."""
        self.closed = True
        self._connection.close()
