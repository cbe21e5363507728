"""Whose a process on a card is, for a service: its user's, as the kernel tells everybody.

The environment of other users' processes, by which a user's own pool tells them apart, is not for the
service's account to read. See docs/decisions/0068-whose-memory-of-a-card.md.
"""

from __future__ import annotations

from bitfusion_pool.ledger.device_watch import process_name
from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.own_files import user_name

_MOST_BYTES = 1 << 16


def owner_of_lease(entry: Entry) -> str:
    """Who may use what a lease holds: its user, by uid."""
    return str(entry.holder.uid)


def owner_of_process(pid: int) -> str:
    """The real uid of a process; empty if it is not to be seen."""
    uid = _uid(pid)
    return "" if uid is None else str(uid)


def named_program(pid: int) -> str:
    """A process as everybody is shown it, ``blender of ada``; empty if it is not to be seen."""
    uid, name = _uid(pid), process_name(pid)
    return f"{name} of {user_name(uid)}" if name and uid is not None else ""


def _uid(pid: int) -> int | None:
    # the owner of /proc/PID is root where a process has made itself unreadable
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None
