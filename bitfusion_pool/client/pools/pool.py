"""What a `bitfusion` command needs of the pool that it uses, whichever it is; the lease that it gets there.

The subcommands know a pool by this interface only; `own_pool` has it for the user's own ledger,
`service_pool` for a service.
"""

from __future__ import annotations

from bitfusion_client.errors import ClientFailed
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.client.allocation_file import Allocation
    from bitfusion_pool.client.keeper.keeper_process import KeeperProcess
    from bitfusion_pool.inventory.emulation import Emulation
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry, Holder
    from bitfusion_pool.ledger.files.lease_lock import LeaseLock
    from bitfusion_pool.ledger.snapshot import Snapshot
else:
    Protocol = object  # importing `typing` would delay every `bitfusion run`


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


class Pool(Protocol):
    """A pool, open for one command. Every method raises PoolOutOfReach where it cannot be asked."""

    @property
    def emulation(self) -> Emulation:
        """How the command behaves where nobody knows what the real client does."""

    @property
    def servers(self) -> Sequence[Server]:
        """The servers, in the order in which commands name them."""

    def client_id(self) -> str:
        """The uuid by which the pool knows this user."""

    def take(
        self,
        request: GpuRequest,
        holder: Holder,
        kind: str,
        inside: str,
        on_position: Callable[[str, str], None],
    ) -> Lease:
        """Take GPUs, after a wait in the queue if need be. No entry is left if that fails, in whatever way.

        Args:
            request: What is wanted; its timeout is that of the wait.
            holder: Who wants it, for others to read.
            kind: PROCESS or RESERVED.
            inside: The ids of the leases under which this command itself runs, as `QueuePosition` has them.
            on_position: Called with the waiting line at the beginning of a wait, when it changes, and every
                ten seconds; and with why the wait is in vain, which is mostly empty. An exception that it
                raises ends the wait.

        Raises:
            NoGpuGiven: Never, not now, or not in time.
            InvalidRequest: A filter has an unknown key.
            ClientFailed: Somebody ended the wait.
        """

    def set_aside(self) -> KeeperProcess | None:
        """Called before a program runs, for as long as that may be; the pool can be used again afterwards.

        Returns:
            What keeps the lease meanwhile, where that takes a process.
        """

    def tell(self, lease: Lease, activity: KernelActivity) -> bool:
        """Pass on what the kernel under a lease does, while a program runs; without an error or a wait.

        Returns:
            Whether it was passed on, as far as is known.
        """

    def release(self, lease: Lease) -> bool:
        """End this command's hold of a lease.

        Returns:
            Whether the GPUs are free now: not while a process that the program left behind may use them.
        """

    def allocation(self, lease: Lease) -> Allocation:
        """What names the lease to later commands, in the allocation file."""

    def keep(self, lease: Lease) -> None:
        """End this command's hold of a reservation, which lives on: from now on its time to live counts."""

    def join(self, allocation: Allocation) -> Lease | None:
        """Hold a reservation, together with others that use it; None if it is over."""

    def end(self, allocation: Allocation) -> bool:
        """End a lease of this user, if it is there.

        Returns:
            Whether the GPUs are free now; a service keeps them for processes that still have the lock.
        """

    def end_by_id(self, entry_id: str) -> bool:
        """End a lease or a request that waits, as `status` names it.

        Returns:
            Whether it is over; else its client has been told, and it ends with the last process that uses it.

        Raises:
            ClientFailed: There is none, it is another user's, or it is in use and nobody can be told.
        """

    def snapshot(self) -> Snapshot:
        """The whole pool at this moment."""

    def close(self) -> None:
        """Let go of the pool; leases are not affected."""

    def __enter__(self) -> Pool:
        """The pool itself."""

    def __exit__(self, *_: object) -> None:
        """Close it."""
