"""The unix socket: its file, and taking connections, with bounds on how many."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable

from bitfusion_client.errors import ClientFailed
from bitfusion_client.listening.acceptor import BACKLOG, Acceptor
from bitfusion_pool.ledger.entries import NO_USER
from bitfusion_pool.own_files import NotOurs, trusted_path, user_name
from bitfusion_pool.service.connections.connection_counts import ConnectionCounts
from bitfusion_pool.service.connections.peer import Peer, connected_uid, own_namespaces, peer_of
from bitfusion_pool.service.refusal import Refusal, RefusalLog

_LONGEST_PATH = 96  # bytes; of the 107 of sun_path, unix(7), so many that a name beside it has room


def bind_socket(path: str) -> socket.socket:
    """A socket that listens at this path, for every user of the machine; who is served is decided later.

    Raises:
        ClientFailed: The path cannot be used; says why and what to do.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise _unusable(path, f"it has more than {_LONGEST_PATH} bytes", "choose a shorter path")
    folder = os.path.dirname(path)
    try:
        trusted_path(path)
        os.stat(folder)
    except OSError as error:
        # where others may rename things, they could put a socket of theirs in its place
        raise _unusable(
            path,
            error.strerror if isinstance(error, NotOurs) else f"{folder}: {error.strerror}",
            "use a folder that root or the service's account owns, and nobody else can change",
        ) from None
    _remove_old(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # under its own name only once it listens: until then every client would be refused
    unpublished = f"{path}.{os.getpid():x}"
    try:
        listening.bind(unpublished)
        os.chmod(unpublished, 0o666)
        listening.listen(BACKLOG)
        os.link(unpublished, path)  # not one that another service has made meanwhile
    except OSError as error:
        listening.close()
        raise _unusable(path, error.strerror, f"let {user_name(os.geteuid())} own {folder}") from None
    finally:
        _unlink(unpublished)
    return listening


def _remove_old(path: str) -> None:
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise _unusable(path, "something that is not a socket has this name", "move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            pass  # of a service that was killed
        except OSError as error:
            raise _unusable(path, error.strerror or str(error), "end what uses it") from None
        else:
            raise _unusable(path, "a service listens there already", "end it, or choose another path")
    os.unlink(path)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _unusable(path: str, why: str | None, cure: str) -> ClientFailed:
    return ClientFailed("", f"cannot listen at {path}: {why}; {cure}")


class Listener:
    """Takes connections of users of this machine. Belongs to the event loop's thread.

    Raises:
        ClientFailed: From `bind_socket`.
    """

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        counts: ConnectionCounts,
        connected: Callable[[socket.socket, Peer], None],
        refusals: RefusalLog,
    ) -> None:
        listening = bind_socket(path)
        self._path = path
        self._inode = os.stat(self._path).st_ino
        self._counts = counts
        self._connected = connected
        self._refusals = refusals
        self._own = own_namespaces()
        self._acceptor = Acceptor(listening, loop, self._take)

    def close(self) -> None:
        """Take no more, and remove the socket's file unless somebody has replaced it."""
        self._acceptor.close()
        try:
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except OSError:
            pass

    def _take(self, connected: socket.socket, _: object) -> None:
        uid, is_counted = NO_USER, False
        try:
            uid = connected_uid(connected)
            self._counts.enter(uid)
            is_counted = True
            peer = peer_of(connected, self._own)
        except (Refusal, OSError) as error:
            if is_counted:
                self._counts.leave(uid)
            if isinstance(error, Refusal):
                self._refusals.refused(uid, error)
                _send_last(connected, error.to_message().format())
            connected.close()
            return
        self._connected(connected, peer)


def _send_last(connected: socket.socket, data: bytes) -> None:
    try:
        connected.send(data)
    except OSError:
        pass
