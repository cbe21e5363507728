"""`bitfusion-pool reap` and `end`: release what dead programs left, end a lease or a request that waits."""

from __future__ import annotations

from bitfusion_client.errors import ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.pools.pool_choice import choose_pool, open_pool
from bitfusion_pool.ledger.files.complaints import unreadable
from bitfusion_pool.ledger.files.lease_lock import remove_leftover_locks
from bitfusion_pool.ledger.files.pool_folder import remove_leftover_drafts
from bitfusion_pool.ledger.files.wake_up import remove_leftover_pipes
from bitfusion_pool.ledger.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping


def reap(environ: Mapping[str, str]) -> str:
    """Remove the entries of dead programs, which every command does, too, and files without an entry.

    A service does both by itself.

    Returns:
        What to tell the administrator.
    """
    choice = choose_pool(environ)
    if not choice.is_own:
        with open_pool(environ):
            return (
                f"nothing to do: {choice.where} releases what dead programs left by itself, "
                "within a second; `bitfusion-pool end ID` ends a lease or a request\n"
            )
    with Ledger(environ) as ledger:
        removed = ledger.reap()
        known = {entry.entry_id for entry in ledger.entries()}
        try:
            files = remove_leftover_locks(ledger.folder, known)
            remove_leftover_pipes(ledger.folder, known)
            remove_leftover_drafts(ledger.folder)
        except OSError as error:
            raise unreadable(ledger.folder, error) from None
    return f"released {removed} leases and queue positions, removed {files} leftover lock files\n"


def end_lease(environ: Mapping[str, str], lease: str) -> str:
    """End a lease, whoever holds it; returns what to tell the administrator.

    Its GPUs are handed out again although a program may still use them. Of a service's pool that is for its
    account, in its folder; all others can ask the service to end a lease.

    Raises:
        ClientFailed: There is no such lease.
    """
    if not choose_pool(environ).is_own:
        return end_entry(environ, lease)
    with Ledger(environ) as ledger:
        if not ledger.release(lease):
            raise ClientFailed("", f"there is no lease {lease}")
    return f"ended lease {lease}\n"


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
