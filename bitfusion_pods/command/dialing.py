"""From an address to a connection that a link can use, tried again and again. Nothing here waits."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream.handshake import LIMIT, Handshake, Refused
from bitfusion_pods.stream.kept_bytes import AnotherHistory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_pods.stream.greeting import Greeting
    from bitfusion_pods.stream.session import Session

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two tries: longer each time."""


class Dialing:
    """For one session, from its first connection on.

    Attributes:
        why: Why the last try came to nothing.
        refused: Whether nobody listened there.
    """

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, session: Session) -> None:
        self.why = "nobody has answered yet"
        self.refused = False
        self._address = address
        self._context = context
        self._session = session
        self._pause = SHORTEST_PAUSE
        self._try_at = 0.0
        self._limit: float | None = None
        self._give_up: Callable[[], None] = lambda: None

    @property
    def seconds_to_next_step(self) -> float:
        """When `go_on` has something to do."""
        until = self._try_at if self._limit is None else self._limit
        return max(0.0, until - time.monotonic())

    def go_on(self) -> None:
        """Called while the session has no connection: try, or give up a try that takes too long."""
        now = time.monotonic()
        if self._limit is None:
            if now >= self._try_at:
                self._try(now)
        elif now >= self._limit:
            self._give_up()
            self._fail(f"no answer within {LIMIT:.0f} s")

    def _try(self, now: float) -> None:
        host, _ = self._address
        raw = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        raw.setblocking(False)
        self._limit = now + LIMIT
        self._watch(raw.fileno(), lambda: self._on_connected(raw), raw.close)
        code = raw.connect_ex(self._address)
        if code not in (0, errno.EINPROGRESS):
            self._give_up()
            self._fail_with(code)

    def _watch(self, fd: int, serve: Callable[[], None], close: Callable[[], None]) -> None:
        others, writing = self._session.others, self._session.writing

        def give_up() -> None:
            others.pop(fd, None)
            writing.discard(fd)
            close()

        others[fd], self._give_up = serve, give_up
        writing.add(fd)

    def _on_connected(self, raw: socket.socket) -> None:
        code = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._give_up()
            self._fail_with(code)
            return
        try:
            handshake = Handshake(raw, self._context, lambda _: self._session.link.greet(), server=False)
        except Refused as refused:
            self._give_up()
            self._fail(str(refused))
            return
        fd = handshake.connection.fileno()
        self._watch(fd, lambda: self._on_handshake(handshake, fd), handshake.close)
        self._on_handshake(handshake, fd)

    def _on_handshake(self, handshake: Handshake, fd: int) -> None:
        try:
            theirs = handshake.go_on()
        except Refused as refused:
            self._give_up()
            self._fail(str(refused))
            return
        if not handshake.wants_write:
            self._session.writing.discard(fd)
        if theirs is not None:
            self._attach(handshake, theirs, fd)

    def _attach(self, handshake: Handshake, theirs: Greeting, fd: int) -> None:
        self._session.others.pop(fd, None)
        self._session.writing.discard(fd)
        self._limit, self._pause, self._try_at = None, SHORTEST_PAUSE, 0.0
        assert handshake.said is not None
        try:
            self._session.link.attach(handshake.connection, handshake.said, theirs)
        except AnotherHistory as error:
            handshake.close()
            self._fail(str(error))

    def _fail_with(self, code: int) -> None:
        self.refused = code == errno.ECONNREFUSED
        self._fail(os.strerror(code))

    def _fail(self, why: str) -> None:
        self.why, self._limit = why, None
        self._try_at = time.monotonic() + self._pause
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
