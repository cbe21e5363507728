"""How many units, hundredths of a GPU, leases and requests take of a pool. Pure.

A share counts as it was asked for: 2 GPUs × 50 % are 100 units. So many MiB count as the share that they are
of the device's memory, rounded up once, as everywhere (`bitfusion_client.kubernetes.sizes.units`). While it
is open which device it will be, because devices of several sizes could serve the request, the smallest one
counts: a limit that lets a request in is kept whichever it gets.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.sizes import units
from bitfusion_pool.inventory.placement import candidates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry


def units_of_request(request: GpuRequest, servers: Sequence[Server]) -> int:
    """The most units that a request may take of these servers, whichever of their devices it gets.

    0 if none of them could ever serve it: the ledger refuses it in its own words.
    """
    if request.memory_mib is None:
        return units(request)
    possible = candidates(request, servers)
    sizes = [
        server.device(number).memory_mib for server in servers for number, _ in possible.get(server.key, ())
    ]
    return units(request, min(sizes)) if sizes else 0


def units_of_entries(entries: Iterable[Entry], servers: Sequence[Server]) -> int:
    """The units of leases and of requests that wait; a lease counts by the devices it has."""
    memory = {
        (server.key, device.number): device.memory_mib for server in servers for device in server.devices
    }
    return sum(_units_of_entry(entry, servers, memory) for entry in entries)


def _units_of_entry(entry: Entry, servers: Sequence[Server], memory: Mapping[tuple[str, int], int]) -> int:
    request = entry.request
    if request.memory_mib is None:
        return units(request)
    if not entry.shares:
        return units_of_request(request, servers)
    # a device that has gone from the pool, or shrunk below the lease, counts as a whole one
    sizes = [memory.get((share.server, share.number), share.memory_mib) for share in entry.shares]
    return units(request, max(min(sizes), request.memory_mib))
