"""Which comes first when a kernel changes its size: the new GPUs, or giving back those that it has. Pure.

The new ones first, wherever they may be had beside the old: then nothing is lost if they can't. The old ones
go back first only where pool, or budget of the pod, have room for the new ones without them and none beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.command.client_reports import GpuStatus, ServerStatus
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.magic.pool_table import could_give, servers_asked

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.pod.account import Standing


def gives_back_first(
    request: GpuRequest, held: Acquisition, list_gpus_output: str, standing: Standing | None
) -> bool:
    """Whether there is room for the new size without the old one only.

    Args:
        request: The new size.
        held: What the kernel has.
        list_gpus_output: What is free in the pool; of a form that is not known it says nothing.
        standing: How the budget of the pod stands, if there is one.
    """
    servers = servers_asked(request, list_gpus_output)
    without = [_with_share(server, held) for server in servers]
    beside = _fits(servers, request) and _fits_budget(standing, request, None)
    return not beside and _fits(without, request) and _fits_budget(standing, request, held)


def _fits(servers: list[ServerStatus], request: GpuRequest) -> bool:
    return not servers or any(could_give(server, request, of_free=True) for server in servers)


def _with_share(server: ServerStatus, held: Acquisition) -> ServerStatus:
    """The server as it will be when the kernel has given back what it has of it."""
    if server.address != held.server or held.memory_mib is None:
        return server
    mib = held.memory_mib
    gpus = [
        GpuStatus(gpu.id, gpu.free_mib + mib, gpu.total_mib) if gpu.id in held.gpu_ids else gpu
        for gpu in server.gpus
    ]
    return ServerStatus(server.index, server.address, server.tasks, tuple(gpus))


def _fits_budget(standing: Standing | None, request: GpuRequest, held: Acquisition | None) -> bool:
    if standing is None:
        return True
    from bitfusion_kernel.pod.turns import held as held_by

    budget = standing.pod.budget
    left = budget.total - held_by(budget, standing.entries)
    return budget.cost(request) <= left + (0 if held is None else budget.cost(held.request))
