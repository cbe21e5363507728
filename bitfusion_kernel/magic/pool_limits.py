"""Whether some server of the pool could ever give a request, as far as `bitfusion list_gpus` tells. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bitfusion_client.command.client_reports import ServerStatus, parse_list_gpus
from bitfusion_client.errors import NeverSatisfiable
from bitfusion_client.request.gpu_request import GpuRequest

_MOST_TOLD = 3


def check_satisfiable(request: GpuRequest, list_gpus_output: str) -> None:
    """Refuse what no server has enough GPUs or memory for. What is free now does not count.

    Filters are left to the pool, and so is everything in output of an unknown form.

    Raises:
        NeverSatisfiable: Names what the servers have.
    """
    servers = [server for server in parse_list_gpus(list_gpus_output) if server.gpus]
    named = [server for server in servers if server.address in request.servers]
    if len(named) == len(set(request.servers)) and named:
        servers = named
    elif request.servers:
        return  # the list may know them under other names
    if servers and not any(_could_give(server, request) for server in servers):
        raise NeverSatisfiable(request, f"the servers have: {_told(servers)}")


def _could_give(server: ServerStatus, request: GpuRequest) -> bool:
    enough = [gpu for gpu in server.gpus if gpu.total_mib >= request.memory_per_gpu(gpu.total_mib)]
    return len(enough) >= request.gpus


def _told(servers: Sequence[ServerStatus]) -> str:
    sizes = {(len(server.gpus), max(gpu.total_mib for gpu in server.gpus)) for server in servers}
    largest = sorted(sizes, reverse=True)
    words = [f"{GpuRequest(min(gpus, 1024)).describe()} of {mib} MiB" for gpus, mib in largest[:_MOST_TOLD]]
    if len(largest) > _MOST_TOLD:
        words.append(f"and {len(largest) - _MOST_TOLD} smaller sizes")
    return ", ".join(words)
