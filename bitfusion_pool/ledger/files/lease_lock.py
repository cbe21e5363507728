"""The lease lock: an OS file lock (flock) that its holder keeps as long as it lives.

Every entry of the ledger has a lock file of its own, locked from before the ledger knows the entry until its
end. The lock belongs to the open file, which wrapper and program share; the kernel drops it with the last
process that has the file open. There are no heartbeats, and no pids, which mean something else in every pid
namespace. It works between containers on one local file system.
"""

from __future__ import annotations

import fcntl
import os
import stat

from bitfusion_pool.ledger.files.pool_folder import LOCKS, ensure_subfolder
from bitfusion_pool.own_files import check_own, open_own

_PASSED = 0o400  # the mode of a file whose lock a service has passed to a client
HIGH_FD = 200  # scripts use low numbers themselves (`exec 3>file`), which would close the lock


class LeaseLock:
    """The lock of one entry, held while this object's descriptor `fd`, or an inherited copy, is open."""

    __slots__ = ("entry_id", "fd", "folder")

    def __init__(self, folder: str, entry_id: str, fd: int) -> None:
        self.folder = folder
        self.entry_id = entry_id
        self.fd = fd

    @classmethod
    def create(cls, folder: str, entry_id: str) -> LeaseLock:
        """Create the file and lock it. Raises OSError."""
        # opened for reading: whoever the descriptor is passed to cannot fill our disk through it
        path = _lock_path(folder, entry_id)
        ensure_subfolder(folder, LOCKS)
        while True:
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    return cls(folder, entry_id, _high(fd))
            except BaseException:
                os.close(fd)
                raise
            # `remove_leftover_locks` deleted it between open and flock
            os.close(fd)

    @classmethod
    def join(cls, folder: str, entry_id: str, wait: bool = True) -> LeaseLock:
        """Hold the lock of an existing entry together with others.

        Raises:
            OSError: There is no such file; or somebody holds the lock alone and `wait` is False.
        """
        return cls._of_existing(folder, entry_id, fcntl.LOCK_SH if wait else fcntl.LOCK_SH | fcntl.LOCK_NB)

    @classmethod
    def take_over(cls, folder: str, entry_id: str) -> LeaseLock:
        """Hold the lock of an existing entry alone, whose holder has ended.

        Raises:
            OSError: There is no such file, or somebody holds the lock.
        """
        return cls._of_existing(folder, entry_id, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @classmethod
    def _of_existing(cls, folder: str, entry_id: str, how: int) -> LeaseLock:
        return cls(folder, entry_id, _high(open_locked(_lock_path(folder, entry_id), os.O_RDONLY, how)))

    @classmethod
    def passed(cls, entry_id: str, fd: int) -> LeaseLock:
        """The lock that a service holds in its own folder, by the descriptor that it passed; -1 for none."""
        return cls("", entry_id, _high(fd) if fd >= 0 else fd)

    @classmethod
    def none(cls, entry_id: str) -> LeaseLock:
        """Of an entry that no lock keeps."""
        return cls("", entry_id, -1)

    def mark_passed(self) -> None:
        """Note that a client has the lock by now: if the service ends, what nobody holds is over."""
        try:
            os.fchmod(self.fd, _PASSED)
        except OSError:  # a disk that fails; then a lease may last some seconds longer after a restart
            pass

    def share(self) -> None:
        """Let programs that are started from now on inherit the lock."""
        os.set_inheritable(self.fd, True)

    def close(self) -> None:
        """Drop this process's hold; inherited copies keep theirs."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def remove(self) -> None:
        """Drop this process's hold and delete the file: the ledger no longer knows the entry."""
        self.close()
        remove_lock_file(self.folder, self.entry_id)


def is_held(folder: str, entry_id: str, shared: bool = False) -> bool:
    """Whether any process holds the lock of this entry.

    A file that is missing or may not be opened proves nothing, so it counts as held: better one GPU unused
    than one handed out twice.

    Args:
        folder: The pool's folder.
        entry_id: The entry.
        shared: Whether several processes may hold the lock together (`LeaseLock.join`).
    """
    # the weakest lock that tells: two processes that look at once must not take each other for the holder
    how = (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB
    try:
        os.close(open_locked(_lock_path(folder, entry_id), os.O_RDONLY, how))
    except OSError:
        return True
    return False


def has_lock_file(folder: str, entry_id: str) -> bool:
    """False for an entry whose file somebody deleted: nobody can tell any more whether its holder lives."""
    path = _lock_path(folder, entry_id)
    try:
        check_own(path, os.lstat(path))
    except OSError:
        return False
    return True


def was_passed(folder: str, entry_id: str) -> bool:
    """Whether a service has passed this lock to a client. Raises OSError."""
    return stat.S_IMODE(os.lstat(_lock_path(folder, entry_id)).st_mode) == _PASSED


def remove_lock_file(folder: str, entry_id: str) -> None:
    """Delete the file, if it is there."""
    try:
        os.unlink(_lock_path(folder, entry_id))
    except OSError:
        pass


def count_held_locks(folder: str) -> int:
    """How many programs hold GPUs or wait for them, whatever the ledger says."""
    try:
        names = os.listdir(f"{folder}/{LOCKS}")
    except OSError:
        return 0
    return sum(has_lock_file(folder, name) and is_held(folder, name, shared=True) for name in names)


def remove_leftover_locks(folder: str, known: set[str]) -> int:
    """Delete unheld lock files of entries that are not `known`; returns how many. Raises OSError."""
    removed = 0
    ensure_subfolder(folder, LOCKS)
    for name in os.listdir(f"{folder}/{LOCKS}"):
        if name in known:
            continue
        if not has_lock_file(folder, name):
            remove_lock_file(folder, name)  # something else, which is no lock
            continue
        path = _lock_path(folder, name)
        try:
            # exclusively: `create` between its open and its flock waits here, then sees that the file is gone
            fd = open_locked(path, os.O_RDONLY, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        try:
            os.unlink(path)
            removed += 1
        except OSError:
            pass
        finally:
            os.close(fd)
    return removed


def open_locked(path: str, flags: int, how: int) -> int:
    """A descriptor of a file of ours, locked as `fcntl.flock` takes `how`. Raises OSError."""
    fd = open_own(path, flags)
    try:
        fcntl.flock(fd, how)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lock_path(folder: str, entry_id: str) -> str:
    return f"{folder}/{LOCKS}/{entry_id}"


def _high(fd: int) -> int:
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    except OSError:  # a low limit of open files
        return fd
    os.close(fd)
    return high
