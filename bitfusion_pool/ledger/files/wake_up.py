"""Wake-ups: wakes one waiter in the queue from another process, through a named pipe per waiter.

It works across pid namespaces. It is only an optimisation: a waiter that misses its wake-up looks
at the ledger by itself a little later.
"""

from __future__ import annotations

import os
import stat

from bitfusion_pool.ledger.files.pool_folder import WAKE_UPS, ensure_subfolder

_PIPE_FLAGS = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class WakeUp:
    """The waiter's end of the pipe, which `open` creates and `close` removes."""

    __slots__ = ("_fd", "_folder", "_path", "_poll")

    def __init__(self, folder: str, entry_id: str) -> None:
        from select import poll

        self._folder = folder
        self._path = _pipe_path(folder, entry_id)
        self._fd = -1
        self._poll = poll()

    def open(self) -> None:
        """Create the pipe.

        Where it cannot be created (a full disk, a file system without pipes), `wait` just sleeps.
        """
        from select import POLLIN

        try:
            ensure_subfolder(self._folder, WAKE_UPS)
            os.mkfifo(self._path, 0o600)
            self._fd = os.open(self._path, os.O_RDWR | _PIPE_FLAGS)
            self._poll.register(self._fd, POLLIN)
        except OSError:
            pass

    def wait(self, seconds: float) -> bool:
        """Sleep until somebody calls `wake`; False if `seconds` passed without that."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        try:
            os.read(self._fd, 512)
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Remove the pipe."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        remove_pipe(self._folder, os.path.basename(self._path))


def wake(folder: str, entry_id: str) -> None:
    """Wake the waiter with this entry, if it has a pipe."""
    try:
        fd = os.open(_pipe_path(folder, entry_id), os.O_WRONLY | _PIPE_FLAGS)
    except OSError:
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"!")
    except OSError:
        pass
    finally:
        os.close(fd)


def remove_pipe(folder: str, entry_id: str) -> None:
    """Delete the pipe of an entry, if it has one."""
    try:
        os.unlink(_pipe_path(folder, entry_id))
    except OSError:
        pass


def remove_leftover_pipes(folder: str, known: set[str]) -> None:
    """Delete the pipes of entries that are not `known`: their waiters are gone. Raises OSError."""
    ensure_subfolder(folder, WAKE_UPS)
    for name in os.listdir(f"{folder}/{WAKE_UPS}"):
        if name not in known:
            remove_pipe(folder, name)


def _pipe_path(folder: str, entry_id: str) -> str:
    return f"{folder}/{WAKE_UPS}/{entry_id}"
