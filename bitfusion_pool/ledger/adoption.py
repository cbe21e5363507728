"""Requests whose service has ended: the service that comes next takes over their locks.

A service holds the lock of a request as long as that waits, and until its client has got it with the grant.
If the service ends, also by SIGKILL, nobody holds it any more, and whoever looked at the ledger would take
the request for dead.
"""

from __future__ import annotations

from contextlib import closing

from bitfusion_pool.ledger.entries import WAITING
from bitfusion_pool.ledger.files.complaints import unreadable
from bitfusion_pool.ledger.files.lease_lock import LeaseLock, was_passed
from bitfusion_pool.ledger.storage.database import open_database
from bitfusion_pool.ledger.storage.entry_table import all_entries
from bitfusion_pool.ledger.storage.sqlite import sqlite3


def adopt_requests(folder: str) -> dict[str, LeaseLock]:
    """Lock the requests of the service before this one. To be called before the ledger is opened.

    Args:
        folder: The pool's folder, from `open_folder`.

    Returns:
        The locks by the ids of the requests. One that was granted but not told is still a request.

    Raises:
        PoolUnreadable: The ledger cannot be used.
    """
    try:
        with closing(open_database(folder)) as db:
            # with an expiry, its time to live counts and not its lock
            found = [entry for entry in all_entries(db) if entry.expires_at is None]
    except sqlite3.Error as error:
        raise unreadable(folder, error) from error
    locks = {}
    for entry in found:
        try:
            if entry.state == WAITING or not was_passed(folder, entry.entry_id):
                locks[entry.entry_id] = LeaseLock.take_over(folder, entry.entry_id)
        except OSError:
            continue  # a process holds it: it is a lease in use; or it has no file, so nobody can come back
    return locks
