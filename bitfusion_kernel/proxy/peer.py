"""A process of this user that has connected to the proxy's socket: it asks one line and is told lines.

No peer can hold up the loop or make the proxy grow: nothing blocks, a question has a length and a time, and
of what a peer does not take only the newest line waits.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from bitfusion_kernel.proxy.event_loop import EventLoop

LONGEST_QUESTION = 65536

QUESTION_LIMIT = 1.0
"""Seconds in which a question must have come: whoever connects sends it at once."""

TAKE_LIMIT = 10.0
"""Seconds after which a peer that takes nothing of what it is told is left."""


class Peer:
    """One connection. It ends with the last answer, with the peer, or at a limit.

    Args:
        loop: Watches it.
        connection: Accepted; the peer's user has been checked.
        on_question: Called once with the peer and its question.
        on_end: Called once, at the end.
    """

    def __init__(
        self,
        loop: EventLoop,
        connection: socket.socket,
        on_question: Callable[[Peer, dict[str, Any]], None],
        on_end: Callable[[Peer], None],
    ) -> None:
        connection.setblocking(False)
        self._loop = loop
        self._connection = connection
        self._fd = connection.fileno()
        self._on_question = on_question
        self._on_end = on_end
        self._asked = False
        self._incoming = b""
        self._outgoing = b""
        self._newest = b""
        self._is_last = False
        self._waits_for_room = False
        self._over = False
        self._timer = f"peer {id(self)}"
        self._end_in(QUESTION_LIMIT)
        loop.on(self._fd, self._on_ready)

    def tell(self, answer: Mapping[str, Any], *, last: bool = True) -> None:
        """Send one line, the `last` unless said otherwise; it replaces one that has not been begun."""
        if self._over:
            return
        self._newest, self._is_last = json.dumps(answer).encode() + b"\n", last
        self._send()

    def rest(self) -> None:
        """Its answer takes a while: do not look at it meanwhile."""
        self._loop.off(self._fd)

    def end(self) -> None:
        """Close the connection; nothing happens the second time."""
        if self._over:
            return
        self._over = True
        self._loop.off(self._fd)
        self._loop.cancel_timer(self._timer)
        self._connection.close()
        self._on_end(self)

    def _end_in(self, seconds: float) -> None:
        self._loop.set_timer(self._timer, time.monotonic() + seconds, self.end)

    # -- its question ------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        if self._outgoing:
            self._send()
        if not self._over:
            self._receive()

    def _receive(self) -> None:
        try:
            chunk = self._connection.recv(LONGEST_QUESTION)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        if self._asked:
            if not chunk or chunk.strip():  # it has left, or speaks on
                self.end()
            return
        self._incoming += chunk
        question = _parse(self._incoming) if chunk.rstrip()[-1:] == b"}" or not chunk else None
        if question is not None:
            self._asked = True
            self._loop.cancel_timer(self._timer)
            self._on_question(self, question)
        elif not chunk or not _may_become_one(self._incoming):
            self.end()

    # -- what it is told ---------------------------------------------------------------------------

    def _send(self) -> None:
        progress = False
        while self._outgoing or self._newest:
            if not self._outgoing:
                self._outgoing, self._newest = self._newest, b""
            try:
                sent = self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                self._await_room(progress=progress)
                return
            except OSError:
                self.end()
                return
            self._outgoing = self._outgoing[sent:]
            progress = True
        self._loop.cancel_timer(self._timer)
        self._waits_for_room = False
        if self._is_last:
            self.end()
        else:
            self._loop.on(self._fd, self._on_ready)

    def _await_room(self, *, progress: bool) -> None:
        if progress or not self._waits_for_room:
            self._end_in(TAKE_LIMIT)
        self._waits_for_room = True
        self._loop.on(self._fd, self._on_ready, writable=True)


def _parse(question: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(question)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _may_become_one(incoming: bytes) -> bool:
    """Whether more of it could make a question; the magic of a kernel ends it with no line end."""
    return incoming[:1] == b"{" and b"\n" not in incoming and len(incoming) < LONGEST_QUESTION
