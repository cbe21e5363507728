"""Placement: which GPUs, and how much memory of each, a request gets. Pure: no clock, no files."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.inventory.filters import accepts, is_listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.servers import Server


@dataclass(frozen=True, slots=True)
class Share:
    """A piece of one device: `memory_mib` of device `number` of the server with the key `server`."""

    server: str
    number: int
    memory_mib: int


def candidates(request: GpuRequest, servers: Sequence[Server]) -> dict[str, list[tuple[int, int]]]:
    """The devices of each server that could serve the request if the pool were empty.

    Returns:
        By server key, the suitable devices as (number, MiB to take). Empty if no server can ever serve it.

    Raises:
        InvalidRequest: A filter has an unknown key.
    """
    found = {}
    for server in servers:
        if not is_listed(request, server):
            continue
        suitable = [
            (device.number, needed)
            for device in server.devices
            if accepts(request, server, device)
            and (request.gpus == 1 or not device.is_mig)  # CUDA shows a program only one of these
            and 0 < (needed := request.memory_per_gpu(device.memory_mib)) <= device.memory_mib
        ]
        if len(suitable) >= request.gpus:
            found[server.key] = suitable
    return found


def choose(
    gpus: int,
    possible: Mapping[str, Sequence[tuple[int, int]]],
    free: Mapping[tuple[str, int], int],
    closed: Set[str] = frozenset(),
) -> tuple[Share, ...] | None:
    """The shares to hand out now, all of one server.

    The fullest devices that still have room are taken, so that whole GPUs stay whole for those who need them.

    Args:
        gpus: How many devices.
        possible: From `candidates`.
        free: Free MiB by (server key, device number).
        closed: Keys of servers that somebody earlier in the queue waits for.

    Returns:
        The shares in the order of the device numbers; None if no server has room.
    """
    best: tuple[int, tuple[Share, ...]] | None = None
    for key, devices in possible.items():
        if key in closed:
            continue
        suitable = sorted(
            (free[key, number] - needed, number, needed)
            for number, needed in devices
            if free.get((key, number), 0) >= needed
        )
        if len(suitable) < gpus:
            continue
        taken = suitable[:gpus]
        left = sum(rest for rest, _, _ in taken)
        if best is None or left < best[0]:
            numbers = sorted((number, needed) for _, number, needed in taken)
            best = left, tuple(Share(key, number, needed) for number, needed in numbers)
    return best[1] if best else None
