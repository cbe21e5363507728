"""Whether the holder of an entry still lives: by its lease lock, or by its time to live."""

from __future__ import annotations

from bitfusion_pool.ledger.entries import REMOTE, RESERVED
from bitfusion_pool.ledger.lease_lock import is_held


def lives(folder: str, entry_id: str, kind: str, expires_at: float | None, now: float) -> bool:
    """Whether the holder lives. A remote one by its time to live alone, all others also by the lease lock."""
    if expires_at is not None and (expires_at > now or kind == REMOTE):
        return expires_at > now
    return is_held(folder, entry_id, shared=kind == RESERVED)
