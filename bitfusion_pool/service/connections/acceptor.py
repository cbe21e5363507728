"""Takes connections from a listening socket, a few at a time."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

BACKLOG = 512
_AT_ONCE = 4  # connections taken before others get their turn
_PAUSE_S = 0.1  # where no descriptor is free


class Acceptor:
    """Belongs to the event loop's thread. `take` gets a socket that does not block, and its address."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[socket.socket, object], None],
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._loop = loop
        self._take = take
        loop.add_reader(listening.fileno(), self._readable)

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connected, address = self._listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause()
                return
            connected.setblocking(False)
            self._take(connected, address)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._readable)
