"""The lease of a command: the GPUs that it holds, the server they are in, and the lease lock."""

from __future__ import annotations

from bitfusion_client.errors import ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry
    from bitfusion_pool.ledger.files.lease_lock import LeaseLock


@dataclass(frozen=True, slots=True)
class Lease:
    """GPUs that this process holds, through its entry in the ledger and the entry's lock.

    `secret` proves to a service that the lease is ours; the user's own pool has none.
    """

    entry: Entry
    server: Server
    lock: LeaseLock
    secret: str = ""


def server_of(servers: Sequence[Server], entry: Entry) -> Server:
    """The server in which all GPUs of a lease are.

    Raises:
        ClientFailed: The pool was configured anew, and they are no longer there.
    """
    key = entry.shares[0].server
    numbers = {share.number for share in entry.shares}
    for server in servers:
        if server.key == key and numbers <= {device.number for device in server.devices}:
            return server
    raise ClientFailed(entry.request, f"server {key} no longer has the GPUs of this request")
