"""Refusals: the errors for a request that no server can ever serve, or none right now. Pure."""

from __future__ import annotations

from bitfusion_client.errors import NeverSatisfiable, NoGpusAvailable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.filters import accepts, is_listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.nvidia.device_use import UseByDevice
    from bitfusion_pool.inventory.servers import Server


def never_satisfiable(request: GpuRequest, servers: Sequence[Server]) -> NeverSatisfiable:
    """The error for a request without candidates; its text is the client's `Error:` line."""
    if not any(server.devices for server in servers):
        asked = f"{request.gpus} GPUs"
        return NeverSatisfiable(request, f"no server can satisfy the request: {asked}; the pool has no GPUs")
    listed = [server for server in servers if is_listed(request, server)]
    largest = max(
        (server for server in (listed or servers) if server.devices),
        key=lambda server: (len(server.devices), max(device.memory_mib for device in server.devices)),
        default=None,
    )
    # -p is a share of a device's memory: here, of the largest server's devices
    measured = largest.devices if largest else [device for server in servers for device in server.devices]
    total = max(device.memory_mib for device in measured)
    asked = f"{_size(request.gpus, request.memory_per_gpu(total))} of memory each"
    if not listed:
        known = ", ".join(server.key for server in servers)
        why = f"no server is called {';'.join(request.servers)}; there are {known}"
    elif largest is None:
        why = "the servers asked for have no GPUs"
    elif request.gpus > 1 and any(device.is_mig for server in listed for device in server.devices):
        why = "CUDA gives a program one MIG device only, so they are handed out one by one"
    elif request.filters and not any(_accepted(request, server) for server in listed):
        why = "no GPU passes the filters " + " ".join(f"{key}={value}" for key, value in request.filters)
    elif request.filters:
        has = _size(len(largest.devices), total)
        passing = max(_accepted(request, server) for server in listed)
        why = f"the largest server has {has}, at most {passing} of one server pass the filters"
    else:
        why = f"the largest server has {_size(len(largest.devices), total)}"
    return NeverSatisfiable(request, f"no server can satisfy the request: {asked}; {why}")


def out_of_use(request: GpuRequest, use: UseByDevice) -> NoGpusAvailable:
    """The error for a request that real devices with a problem could serve, and no others."""
    problems = [f"GPU {number}: {found.problem}" for (_, number), found in use.items() if found.problem]
    return NoGpusAvailable(
        request, f"not enough GPUs available: {request.gpus} GPUs requested; {'; '.join(problems)}"
    )


def not_enough_free(
    request: GpuRequest,
    possible: Mapping[str, Sequence[tuple[int, int]]],
    free: Mapping[tuple[str, int], int],
) -> NoGpusAvailable:
    """The error for a request that would have to wait but may not.

    Args:
        request: The request.
        possible: From `placement.candidates`; not empty.
        free: Free MiB by (server key, device number).
    """
    most = max(
        sum(free.get((key, number), 0) >= needed for number, needed in devices)
        for key, devices in possible.items()
    )
    needed = max(needed for devices in possible.values() for _, needed in devices)
    return NoGpusAvailable(
        request,
        f"not enough GPUs available: {_size(request.gpus, needed)} of memory each requested, "
        f"{min(most, request.gpus)} available on one server",
    )


def _accepted(request: GpuRequest, server: Server) -> int:
    return sum(accepts(request, server, device) for device in server.devices)


def _size(gpus: int, memory_mib: int) -> str:
    return f"{gpus} GPUs with {memory_mib} MiB"
