"""A request that waits, as the session of its client keeps it."""

from __future__ import annotations

import time

from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.ledger.files.lease_lock import LeaseLock


class QueuedRequest:
    """The request, its lock, and what its client was told last.

    Attributes:
        entry: As it was when it came.
        lock: Keeps it alive in the ledger.
        inside: The id of the lease under which the client itself runs.
        shown: The position that the client knows.
        since: By `time.monotonic`.
    """

    __slots__ = ("entry", "inside", "lock", "shown", "since")

    def __init__(self, entry: Entry, lock: LeaseLock, inside: str = "") -> None:
        self.entry = entry
        self.lock = lock
        self.inside = inside
        self.shown: object = None
        self.since = time.monotonic()
