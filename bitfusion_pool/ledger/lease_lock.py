"""Is the holder of a lease, or the owner of a queue ticket, still there? An OS file lock says so.

Each has a file of its own, locked (flock) from before the ledger knows it until its end. The lock belongs to
the open file, which wrapper and program share, and the kernel drops it with the last of them: no heartbeat,
no pid, which means something else in every pid namespace. Works between containers on one local file system.
"""

from __future__ import annotations

import fcntl
import os

FOLDER = "locks"
HIGH_FD = 200  # scripts use low numbers themselves (`exec 3>file`) and would close the lock by it


def lock_path(folder: str, entry_id: str) -> str:
    return f"{folder}/{FOLDER}/{entry_id}"


class LifeLock:
    """The lock of one entry, held while this object's descriptor, or an inherited copy, is open."""

    __slots__ = ("entry_id", "fd", "folder")

    def __init__(self, folder: str, entry_id: str, fd: int) -> None:
        self.folder = folder
        self.entry_id = entry_id
        self.fd = fd

    @classmethod
    def create(cls, folder: str, entry_id: str, mode: int) -> LifeLock:
        """Make the file with permission bits `mode`, and lock it. Raises OSError."""
        path = lock_path(folder, entry_id)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                os.fchmod(fd, mode)  # whatever the umask: others must be able to ask
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    return cls(folder, entry_id, _high(fd))
            except BaseException:
                os.close(fd)
                raise
            # a cleaner took it for a leftover between open and flock
            os.close(fd)

    @classmethod
    def join(cls, folder: str, entry_id: str) -> LifeLock:
        """Hold the lock of an existing entry together with others. Raises OSError."""
        fd = os.open(lock_path(folder, entry_id), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        except BaseException:
            os.close(fd)
            raise
        return cls(folder, entry_id, _high(fd))

    def share(self) -> None:
        """Let programs that are started from now on inherit the lock."""
        os.set_inheritable(self.fd, True)

    def close(self) -> None:
        """Drop this process's hold; inherited copies keep theirs."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def remove(self) -> None:
        """Forget the file: the ledger no longer knows the entry."""
        self.close()
        remove_lock(self.folder, self.entry_id)


def _high(fd: int) -> int:
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    except OSError:  # a low limit of open files
        return fd
    os.close(fd)
    return high


def is_alive(folder: str, entry_id: str, shared: bool = False) -> bool:
    """Whether anybody still holds the lock of this entry; `shared`: several may hold it together.

    A missing or forbidden file proves nothing, so it counts as alive: better a GPU too few than one twice.
    """
    try:
        fd = os.open(lock_path(folder, entry_id), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        # as weak as it may be: two that ask at the same moment should not take each other for the holder
        fcntl.flock(fd, (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def has_lock_file(folder: str, entry_id: str) -> bool:
    """False for an entry whose file somebody deleted: nobody can tell any more whether it lives."""
    return os.path.exists(lock_path(folder, entry_id))


def remove_lock(folder: str, entry_id: str) -> None:
    try:
        os.unlink(lock_path(folder, entry_id))
    except OSError:
        pass


def remove_leftovers(folder: str, known: set[str]) -> int:
    """Delete lock files which no entry knows and nobody holds; returns how many there were."""
    removed = 0
    for name in os.listdir(f"{folder}/{FOLDER}"):
        if name in known:
            continue
        try:
            fd = os.open(lock_path(folder, name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # exclusively: somebody between open and flock waits here and then sees that the file is gone
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(lock_path(folder, name))
            removed += 1
        except OSError:
            pass
        finally:
            os.close(fd)
    return removed
