"""Where the next proxy of a kernel finds the supervisor of the one before: a socket in the private folder."""

from __future__ import annotations

import os
import select
import socket
import struct
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes import private_folder
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import VERSION, JoinCommand, JoinedEvent, RefusedEvent

if TYPE_CHECKING:
    from bitfusion_kernel.processes.messages import Message

NAME = "supervisor"

JOIN_LIMIT = 2.0
"""Seconds that a supervisor has to answer."""


class Gone(Exception):
    """No supervisor listens in that folder; perhaps it is just ending."""


class Silent(Exception):
    """There is one, and it does not answer: it has been stopped, or the machine stands still."""


class Refused(Exception):
    """The supervisor is not joined; `version` is its own."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class MeetingPoint:
    """The supervisor's side: listens, and hears who comes.

    One that comes while another is heard waits; one that says something else than JoinCommand is not heard
    again. `folder` is the one that the next proxy will look for; empty if it will find none.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._listener: socket.socket | None = None
        self._comer: MessageConnection | None = None
        self.listen_in(folder)

    @property
    def open(self) -> bool:
        """Whether the next proxy can come: somebody may have cleaned the folder since."""
        return self._listener is not None and os.path.exists(os.path.join(self._folder, NAME))

    def listen_in(self, folder: str) -> None:
        """Listen, unless it is done, in the folder that the kernel uses now: it may have been made again.

        Nowhere if that is another one, or allows no socket.
        """
        if not self._folder or (folder == self._folder and self.open):
            return
        self.close()
        if folder != self._folder:
            return
        listener = socket.socket(socket.AF_UNIX)
        try:
            private_folder.lock(folder)  # of one that was made again; else it is held already
            listener.bind(os.path.join(folder, NAME))
            listener.listen(1)
        except OSError:
            listener.close()
        else:
            listener.setblocking(False)
            self._listener = listener

    @property
    def source(self) -> socket.socket | MessageConnection | None:
        """What poll() shall wait for."""
        return self._comer or self._listener

    def hear(self) -> tuple[MessageConnection, JoinCommand] | None:
        """Something can be read from `source`: whoever wants to join, once that has been said."""
        if self._comer is None:
            self._comer = self._accept()
            return None
        comer = self._comer
        said = comer.receive()
        if not said and not comer.closed:
            return None
        self._comer = None
        if said and isinstance(said[0], JoinCommand):
            return comer, said[0]
        comer.close()
        return None

    def _accept(self) -> MessageConnection | None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return None
        if not _is_ours(connection):
            connection.close()
            return None
        return MessageConnection(connection)

    def close(self) -> None:
        """Listen no longer."""
        if self._comer is not None:
            self._comer.close()
        if self._listener is not None:
            self._listener.close()
        self._comer = self._listener = None


def join(folder: str, restarter: int) -> tuple[socket.socket, JoinedEvent]:
    """The next proxy's side: meet the supervisor that listens in this folder.

    Args:
        folder: Of a kernel with the proxy's key.
        restarter: See JoinCommand.

    Raises:
        Gone, Silent, Refused: See there.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(JOIN_LIMIT)
        connection.connect(os.path.join(folder, NAME))
        if not _is_ours(connection):
            raise Gone
        answer = _ask(connection, JoinCommand(VERSION, restarter))
    except TimeoutError:
        connection.close()
        raise Silent from None
    except OSError:
        connection.close()
        raise Gone from None
    except (Gone, Silent):
        connection.close()
        raise
    if isinstance(answer, JoinedEvent):
        return connection, answer
    connection.close()
    raise Refused(answer.version if isinstance(answer, RefusedEvent) else 0)


def _ask(connection: socket.socket, question: JoinCommand) -> Message:
    messages = MessageConnection(connection)
    messages.send(question)
    deadline = time.monotonic() + JOIN_LIMIT
    while not messages.closed and (left := deadline - time.monotonic()) > 0:
        select.select([connection], [], [], left)
        if said := messages.receive():
            return said[0]
    raise Gone if messages.closed else Silent


def _is_ours(peer: socket.socket) -> bool:
    said = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", said)[1] == os.getuid())
