"""A socket in a folder that the kubelet watches: put there in one step, and known by its inode."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path


class OwnSocket:
    """One of two names in the kubelet's folder, which another plugin of the resource may take at any time.

    gRPC binds a hidden name, which the kubelet passes over, and `show` renames it: so the socket answers from
    the moment it is seen, an older one is replaced in one step, and gRPC, which removes the name it has bound
    when it ends, never removes the socket of a successor.

    Two names, because the kubelet's plugin watcher looks once a second, and lets go of a socket in one look
    and takes another one of the same name in the next (pkg/kubelet/pluginmanager/reconciler of 1.34): after a
    plugin that was killed, another name is known a second sooner. Where a plugin still runs its name is
    taken over: the kubelet ends streams by the resource, and would end the new one with the old one.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._candidates = [folder / name for name in names]
        self.path = self._candidates[0]
        self._inode: int | None = None

    def choose(self) -> None:
        """Decide which name to take next; what is left at the other one and serves nobody is removed."""
        left = [path for path in self._candidates if os.path.lexists(path)]
        running = [path for path in left if not _is_dead(path)]
        if running:
            self.path = running[0]
            return
        unused = [path for path in self._candidates if path not in left]
        replaceable = [path for path in left if not _is_folder(path)]
        self.path = (unused or replaceable or self._candidates)[0]
        for path in left:
            if path != self.path:
                _unlink(path)

    def others(self) -> list[Path]:
        """Sockets of other plugins, whether they run or not."""
        own = self.path if self.is_there() else None
        return [path for path in self._candidates if path != own and os.path.lexists(path)]

    def hidden_path(self) -> Path:
        """A new name to bind; the kubelet's plugin watcher ignores names that begin with a dot."""
        # not the process id: it is 1 in every container
        return self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")

    def check(self, hidden: Path) -> None:
        """Raise OSError where no socket can be bound there or shown: gRPC's words do not say why."""
        if _is_folder(self.path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(self.path))
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(os.fspath(hidden))
        hidden.unlink()

    def show(self, hidden: Path) -> None:
        """Put what was bound there in its place. Raises OSError."""
        inode = os.lstat(hidden).st_ino
        os.rename(hidden, self.path)
        self._inode = inode

    def is_there(self) -> bool:
        """Whether the name still leads to what was last shown."""
        try:
            return os.lstat(self.path).st_ino == self._inode
        except OSError:
            return False

    def remove(self) -> None:
        """Take it away, if it is still the own one."""
        if self.is_there():
            _unlink(self.path)
        self._inode = None


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass


def _is_folder(path: Path) -> bool:
    """Which no socket can replace; a link to one it can."""
    return path.is_dir() and not path.is_symlink()


def _is_dead(path: Path) -> bool:
    """Whether nobody listens there any more. One that hangs listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)  # a full queue is somebody's, too
        try:
            client.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
    return False
