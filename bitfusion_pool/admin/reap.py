"""`bitfusion-pool reap`: release what dead programs left, delete leftover files, end a lease by force."""

from __future__ import annotations

from bitfusion_client.errors import ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.admin.end import end_entry
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
