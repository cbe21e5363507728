"""Who holds GPUs in a pool, as `bitfusion-pool status` would tell."""

from __future__ import annotations

import os
from pathlib import Path


def held_leases(folder: Path) -> set[str]:
    """The leases in the ledger under `folder`; empty while nobody has used that pool, or nobody can."""
    from bitfusion_client.errors import BitfusionError
    from bitfusion_pool.ledger.files.pool_folder import DATABASE
    from bitfusion_pool.ledger.ledger import Ledger
    from bitfusion_pool.ledger.snapshot import take_snapshot

    if not (folder / DATABASE).exists():
        return set()
    environ = {"BITFUSION_POOL_DIR": str(folder), "HOME": os.environ.get("HOME", "/")}
    try:
        with Ledger(environ) as ledger:
            snapshot = take_snapshot(ledger)
    except (BitfusionError, OSError):
        return set()  # a ledger that a test made unreadable
    return {f"{entry.entry_id} of {entry.holder.label}" for entry in snapshot.held}
