"""Whether the holder of an entry still lives: by lease lock, time to live, start of the machine.

Of clients on other machines only the service that hears them knows it; the ledger takes them for alive.

A restart of the machine ends every lease, because leases are file locks. A ledger of an earlier start holds
nothing of value, then, and may be damaged if the power was cut; so it is replaced instead of read.
"""

from __future__ import annotations

import os
import time

from bitfusion_pool.ledger.entries import REMOTE, RESERVED
from bitfusion_pool.ledger.files.lease_lock import is_held
from bitfusion_pool.own_files import open_own, write_own

_NOTE = "boot"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def lives(folder: str, entry_id: str, kind: str, expires_at: float | None, now: float) -> bool:
    """Whether the holder lives. A remote one has no lock: it does until its service ends the entry."""
    if kind == REMOTE:
        return True
    if expires_at is not None and expires_at > now:
        return True
    return is_held(folder, entry_id, shared=kind == RESERVED)


def clock() -> float:
    """Seconds since the machine started, sleep included; setting its time changes nothing."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_of(folder: str) -> str | None:
    """Which start of the machine the ledger is of; None if nobody has noted it. Raises OSError."""
    try:
        return _read(open_own(f"{folder}/{_NOTE}", os.O_RDONLY))
    except FileNotFoundError:
        return None


def this_boot() -> str:
    """The present start of the machine; empty where it cannot be known, which is then taken for one start."""
    try:
        return _read(os.open(_BOOT_ID, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return ""


def note_boot(folder: str) -> None:
    """Note that the ledger in `folder` is of the present start of the machine. Raises OSError."""
    write_own(f"{folder}/{_NOTE}", this_boot())


def _read(fd: int) -> str:
    try:
        return os.read(fd, 64).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
