"""A socket in a folder that the kubelet watches: put there in one step, and known by its inode."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


class OwnSocket:
    """One name in the kubelet's folder, which another plugin of the same resource may take at any time.

    gRPC binds a hidden name, which the kubelet passes over, and `show` renames it: so the socket answers from
    the moment it is seen, an older one is replaced in one step, and gRPC, which removes the name it has bound
    when it ends, never removes the socket of a successor.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self._inode: int | None = None

    def hidden_path(self) -> Path:
        """A new name to bind; the kubelet's plugin watcher ignores names that begin with a dot."""
        # not the process id: it is 1 in every container
        return self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")

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
            try:
                self.path.unlink()
            except OSError:
                pass
        self._inode = None
