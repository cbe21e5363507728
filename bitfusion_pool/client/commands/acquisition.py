"""Taking GPUs for a command: query the servers, wait in the queue, write the allocation file, log it."""

from __future__ import annotations

import time

from bitfusion_client.command.command_line import ALL_LINES_VARIABLE
from bitfusion_client.command.log_output import VERSION
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request.decimals import plain_number
from bitfusion_pool.client.allocation_file import allocation_folder, write_allocation
from bitfusion_pool.client.pools.first_contact import query_servers
from bitfusion_pool.client.program.program import LEASES_VARIABLE
from bitfusion_pool.ledger.entries import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.client.allocation_file import Allocation
    from bitfusion_pool.client.pools.first_contact import Contact
    from bitfusion_pool.client.pools.pool import Lease, Pool
    from bitfusion_pool.ledger.entries import Holder

EACH_S = 60.0
WAY_OUT = (
    "run the program itself, without `bitfusion`, on what is held already; or ask for less; "
    "or run this command elsewhere"
)


def acquire(
    pool: Pool,
    contact: Contact,
    request: GpuRequest,
    holder: Holder,
    environ: Mapping[str, str],
    kind: str = PROCESS,
) -> Lease:
    """Submit the request and wait until it is granted, as `Pool.take` has it; `contact` logs it.

    Raises:
        BitfusionError: There are no GPUs for this request.
    """
    listed = query_servers(pool.servers, contact, request)
    told = WaitingLines(contact, bool(environ.get(ALL_LINES_VARIABLE)), time.monotonic)
    lease = pool.take(request, holder, kind, _inside(environ), told.tell)
    contact.log.log(f"Choosing GPUs from server list [{' '.join(server.key for server in listed)}]")
    return lease


def _inside(environ: Mapping[str, str]) -> str:
    return environ.get(LEASES_VARIABLE) or environ.get("BITFUSION_POOL_LEASE", "")


class WaitingLines:
    """Logs a wait: each change for a program that reads the lines, one line a minute for people.

    Args:
        contact: Logs it, unless the emulation says that nothing is said.
        is_read: Whether a program reads it, such as a kernel.
        clock: Seconds of a clock that only goes on.
    """

    def __init__(self, contact: Contact, is_read: bool, clock: Callable[[], float]) -> None:
        self._contact = contact
        self._is_read = is_read
        self._clock = clock
        self._due = 0.0

    def tell(self, line: str, blocked: str) -> None:
        """See `Pool.take`. Raises ClientFailed where a person would wait forever; a kernel shows why."""
        if blocked and not self._is_read:
            from bitfusion_client.errors import ClientFailed

            raise ClientFailed("", f"{blocked}, so it would wait forever. What to do: {WAY_OUT}")
        now = self._clock()
        if self._contact.emulation.waiting_text == "places" and (self._is_read or now >= self._due):
            self._due = now + EACH_S
            self._contact.log.log(line)


def announce(contact: Contact, lease: Lease, allocation: Allocation, path: str = "") -> str:
    """Write the allocation file and the log lines from `Requesting` to `Locked`; returns the file's path.

    `path` is where to write it, by default a new name; `allocation` is from `Pool.allocation`.

    Raises:
        ClientFailed: The file that `path` names cannot be written.
        PoolUnreadable: There is no place for a new one.
    """
    shares = lease.entry.shares
    numbers = " ".join(str(share.number) for share in shares)
    asked = (
        f"GPUs [{numbers}] with {shares[0].memory_mib} MiB of memory from server 0, with version {VERSION}"
    )
    contact.log.log(f"Requesting {asked}...")
    contact.log.plain(f"Requested resources:\nServer List: {lease.server.key}\nClient idle timeout: 0 min")
    try:
        path = write_allocation(allocation, path)
    except OSError as error:
        raise _not_written(path, error) from error
    partial = partial_text(lease.entry.request, lease.server.device(shares[0].number).memory_mib)
    contact.log.log(
        f"Locked {len(shares)} GPUs with partial memory {partial}, configuration saved to '{path}'"
    )
    return path


def partial_text(request: GpuRequest, total_mib: int) -> str:
    """The share of memory in the `Locked` line.

    With `-m` it is computed from the device's memory: what the real client writes then is unknown.
    """
    if request.memory_mib is not None:
        return plain_number(round(request.memory_mib / total_mib, 6))
    return plain_number(request.partial or 1)


def _not_written(path: str, error: OSError) -> BitfusionError:
    if path:
        from bitfusion_client.errors import ClientFailed

        why = f"allocation file {path} cannot be written: {error.strerror}"
        return ClientFailed("", why, "name another one with -f FILE")
    from bitfusion_pool.ledger.files.complaints import no_allocation_file

    return no_allocation_file(allocation_folder(), error)
