"""Takes connections from a listening socket, a few at a time, also where descriptors have run out."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable

BACKLOG = 1024  # so many wait in the system while the loop does something else
AT_ONCE = 4  # connections taken before others get their turn
_PAUSE_S = 0.1  # where no descriptor is free
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Belongs to the event loop's thread. `take` gets a socket that does not block, and its address.

    `make_room` is called where no descriptor is left: it closes a connection, and tells whether it had one.
    Where it had none, nothing is taken for a moment: the socket stays readable, and asking it over and over
    would take a core.
    """

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[socket.socket, object], None],
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._loop = loop
        self._take = take
        self._make_room = make_room
        loop.add_reader(listening.fileno(), self._readable)

    def close(self) -> None:
        """Take no more. May be called twice."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()

    def _readable(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connected, address = self._listening.accept()
            except OSError as error:
                if error.errno in _NO_ROOM and not self._make_room():
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


def forget_at_close(connected: socket.socket) -> None:
    """Its end is a reset: one that ends in order stays in the system's memory, a minute without an answer."""
    try:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:  # it has ended
        pass
