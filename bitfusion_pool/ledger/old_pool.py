"""The pool of earlier versions, one for all users of a machine, which is no longer used.

It is never opened: everybody could write to it. Looking at it follows no link, waits for nobody, and tries
the locks of this user's own files only.
"""

from __future__ import annotations

import fcntl
import os
import stat

from bitfusion_client.fast_imports import dataclass
from bitfusion_pool.ledger.files.pool_folder import LOCKS
from bitfusion_pool.own_files import user_name

OLD_FOLDER = "/var/tmp/bitfusion-pool"
_MOST_FILES = 10_000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OldPool:
    """What can be said about it without trusting it.

    Attributes:
        folder: Where it is.
        owner: Who made it; only that user and root can remove it.
        running: How many of this user's programs hold GPUs of it, or wait for them.
        others: How many lock files of other users there are.
    """

    folder: str
    owner: int
    running: int
    others: int

    def text(self) -> str:
        """What to tell the person, in one line."""
        said = f"{self.folder} is the pool of an earlier version, which is no longer used"
        if self.running:
            one = self.running == 1
            said += f"; {self.running} program{' of yours still uses' if one else 's of yours still use'} it"
        if self.others:
            said += f"; other users have {self.others} lock file{'' if self.others == 1 else 's'} in it"
        who = "" if os.geteuid() in (0, self.owner) else f", as {_names(self.owner)}"
        when = ", once these programs have ended" if self.running or self.others else ""
        return f"{said}. What to do: rm -r {self.folder}{who}{when}"


def find_old_pool(folder: str = OLD_FOLDER) -> OldPool | None:
    """Look at it; None where there is none."""
    try:
        fd = os.open(folder, _FOLDER_FLAGS)
    except OSError:
        return None
    try:
        running, others = _count(fd)
        return OldPool(folder, os.fstat(fd).st_uid, running, others)
    finally:
        os.close(fd)


def _count(pool: int) -> tuple[int, int]:
    try:
        locks = os.open(LOCKS, _FOLDER_FLAGS, dir_fd=pool)
    except OSError:
        return 0, 0
    running = others = looked_at = 0
    try:
        with os.scandir(locks) as files:
            for file in files:
                looked_at += 1
                if looked_at > _MOST_FILES:
                    break
                mine = _is_locked(locks, file.name)
                running += mine is True
                others += mine is None
    except OSError:
        pass
    finally:
        os.close(locks)
    return running, others


def _is_locked(folder: int, name: str) -> bool | None:
    """Whether a lock file of this user is held; None for that of somebody else, False for anything else."""
    try:
        found = os.lstat(name, dir_fd=folder)
        if not stat.S_ISREG(found.st_mode):
            return False
        if found.st_uid != os.geteuid() or found.st_nlink != 1:
            return None
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        if not os.path.samestat(found, os.fstat(fd)):
            return None
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _names(owner: int) -> str:
    return "root" if owner == 0 else f"{user_name(owner)} or root"
