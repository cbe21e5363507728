"""Wakes one waiter from another process, across users and pid namespaces: a named pipe per waiter.

Only a hurry-up. Whoever misses it looks again by itself a little later.
"""

from __future__ import annotations

import os

FOLDER = "bells"


def _path(folder: str, entry_id: str) -> str:
    return f"{folder}/{FOLDER}/{entry_id}"


class Bell:
    """The waiter's end. Without one (a full disk, a file system without pipes) `wait` just sleeps."""

    __slots__ = ("_poll", "fd", "path")

    def __init__(self, folder: str, entry_id: str, mode: int) -> None:
        from select import POLLIN, poll

        self.path = _path(folder, entry_id)
        self.fd = -1
        self._poll = poll()
        try:
            os.mkfifo(self.path, mode)
            os.chmod(self.path, mode)
            self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._poll.register(self.fd, POLLIN)
        except OSError:
            pass

    def wait(self, seconds: float) -> bool:
        """Sleep until it rings; False if `seconds` passed without that."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        try:
            os.read(self.fd, 512)
        except OSError:
            pass
        return True

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        try:
            os.unlink(self.path)
        except OSError:
            pass


def ring(folder: str, entry_id: str) -> None:
    """Wake the waiter with this id, if it has a bell."""
    try:
        fd = os.open(_path(folder, entry_id), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"!")
    except OSError:
        pass
    finally:
        os.close(fd)


def remove_leftovers(folder: str, known: set[str]) -> None:
    """Delete the pipes of waiters that are gone."""
    for name in os.listdir(f"{folder}/{FOLDER}"):
        if name not in known:
            try:
                os.unlink(_path(folder, name))
            except OSError:
                pass
