"""The unix socket: its file, and taking connections, with bounds on how many."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections import Counter
from collections.abc import Callable

from bitfusion_client.errors import ClientFailed
from bitfusion_pool.messages.refusal_codes import TOO_MANY
from bitfusion_pool.own_files import NotOurs, trusted_path, user_name
from bitfusion_pool.service.peer import Peer, connected_uid, own_namespaces, peer_of
from bitfusion_pool.service.refusal import Refusal
from bitfusion_pool.service.refusal_log import RefusalLog

_BACKLOG = 512
_AT_ONCE = 4  # connections taken before others get their turn
_PAUSE_S = 0.1  # where no descriptor is free
_LONGEST_PATH = 107  # bytes, sun_path of unix(7)


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
    try:
        listening.setblocking(False)
        listening.bind(path)
        os.chmod(path, 0o666)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _unusable(path, error.strerror, f"let {user_name(os.geteuid())} own {folder}") from None
    return listening


def _remove_old(path: str) -> None:
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise _unusable(path, "something that is no socket has this name", "move it away")
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


def _unusable(path: str, why: str | None, cure: str) -> ClientFailed:
    return ClientFailed("", f"cannot listen at {path}: {why}; {cure}")


class Listener:
    """Takes connections of users of this machine. Belongs to the event loop's thread."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        most_of_user: int,
        most: int,
        connected: Callable[[socket.socket, Peer], None],
        refusals: RefusalLog,
    ) -> None:
        self._listening = listening
        self._path = listening.getsockname()
        self._inode = os.stat(self._path).st_ino
        self._loop = loop
        self._most_of_user = most_of_user
        self._most = most
        self._connected = connected
        self._refusals = refusals
        self._own = own_namespaces()
        self._counts: Counter[int] = Counter()
        loop.add_reader(listening.fileno(), self._readable)

    @property
    def count(self) -> int:
        """How many connections there are."""
        return self._counts.total()

    def ended(self, uid: int) -> None:
        """A connection of this user has ended."""
        self._counts[uid] -= 1
        if self._counts[uid] <= 0:
            del self._counts[uid]

    def close(self) -> None:
        """Take no more, and remove the socket's file unless somebody has replaced it."""
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        try:
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except OSError:
            pass

    def _readable(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connected, _ = self._listening.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause()
                return
            self._take(connected)

    def _take(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        uid = -1
        try:
            uid = connected_uid(connected)
            self._check_bounds(uid)
            peer = peer_of(connected, self._own)
        except Refusal as refusal:
            self._refusals.refused(uid, refusal)
            _send_and_close(connected, refusal.to_message().format())
            return
        except OSError:
            connected.close()
            return
        self._counts[uid] += 1
        self._connected(connected, peer)

    def _check_bounds(self, uid: int) -> None:
        if self._counts[uid] >= self._most_of_user:
            raise Refusal(
                TOO_MANY,
                f"one user may have {self._most_of_user} connections to this pool, and you have as many",
                "end some of your programs that hold GPUs or wait for them",
            )
        if self.count >= self._most:
            raise Refusal(
                TOO_MANY,
                f"this pool has {self._most} connections, and takes no more",
                "try again in a moment",
            )

    def _pause(self) -> None:
        fd = self._listening.fileno()
        self._loop.remove_reader(fd)
        self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._readable)


def _send_and_close(connected: socket.socket, data: bytes) -> None:
    try:
        connected.send(data)
    except OSError:
        pass
    connected.close()
