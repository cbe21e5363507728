"""`bitfusion-pool end`: end a lease or a request that waits by its id."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.pools.pool_choice import open_pool

if TYPE_CHECKING:
    from collections.abc import Mapping


def end_entry(environ: Mapping[str, str], entry_id: str) -> str:
    """End it in the pool that this environment uses; returns what to tell whoever asked for it.

    Raises:
        ClientFailed: There is none with this id; or it is another user's; or, in the user's own pool, a
            program uses it.
        PoolOutOfReach: The pool cannot be asked.
    """
    with open_pool(environ) as pool:
        if pool.end_by_id(entry_id):
            return f"ended {entry_id}\n"
    return (
        f"{entry_id} ends: its client has been told, and its GPUs are free as soon as no process uses them "
        "any more\n"
    )
