"""The pipe that tells whether a process still lives that could hold GPU memory of a lease over the network.

Wrapper and program have its reading end open, in the place of a lease lock's descriptor; the keeper has the
writing end, and nobody ever writes. When the last reader is gone the system marks it as an error.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.files.lease_lock import LeaseLock

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal


class LifePipe:
    """Made by the wrapper. `writing_end` is for the keeper, and for the next one should that die."""

    __slots__ = ("lock", "writing_end")

    def __init__(self, entry_id: str) -> None:
        reading_end, self.writing_end = os.pipe()
        self.lock = LeaseLock.passed(entry_id, reading_end)

    def close(self) -> None:
        """Close this process's ends."""
        self.lock.close()
        if self.writing_end >= 0:
            os.close(self.writing_end)
            self.writing_end = -1


def is_held(writing_end: int) -> bool:
    """Whether any process has the reading end open."""
    from select import poll

    watched = poll()
    watched.register(writing_end, 0)  # an error is always told
    return not watched.poll(0)


def kill_holders(writing_end: int, but: int) -> None:
    """SIGKILL every process of this user that has the reading end open, and is not `but` or this one.

    What a program leaves behind may be in no group or session that anybody knows. Where there is no /proc
    nobody is found.
    """
    mark = os.fstat(writing_end)
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in filter(str.isdigit, names):
        pid = int(name)
        if pid not in (but, os.getpid()) and _has_open(pid, mark):
            _kill_holder(pid, mark)


def _kill_holder(pid: int, mark: os.stat_result) -> None:
    try:
        process = os.pidfd_open(pid)
    except (OSError, AttributeError):  # it has ended; or a system without
        return
    try:
        if _has_open(pid, mark):  # still the process that was found
            _signal.pidfd_send_signal(process, 9)
    except OSError:
        pass
    finally:
        os.close(process)


def _has_open(pid: int, mark: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            found = os.stat(f"{folder}/{name}")
            if (found.st_dev, found.st_ino) == (mark.st_dev, mark.st_ino):
                return True
    except OSError:  # another user's, or it has ended meanwhile
        pass
    return False
