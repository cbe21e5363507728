"""Who gets which GPUs. Pure: no clock, no files; the ledger and `bitfusion-pool simulate` both call it."""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, NeverSatisfiable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.request import GpuRequest
    from bitfusion_pool.inventory.servers import Device, Server

FILTER_KEYS = (
    "server.addr",
    "server.hostname",
    "server.has-rdma",
    "server.cuda-version",
    "server.driver-version",
    "server.dirver-version",  # the vendor's README spells it so; both are taken
    "device.id",
    "device.name",
    "device.phy-memory",
)


@dataclass(frozen=True, slots=True)
class Share:
    """A piece of one device: `memory_mib` of device `number` of the server called `server` (address:port)."""

    server: str
    number: int
    memory_mib: int


def _value_of(key: str, server: Server, device: Device) -> str:
    match key:
        case "server.addr":
            return server.address
        case "server.hostname":
            return server.hostname or server.name
        case "server.has-rdma":
            return "true" if server.has_rdma else "false"
        case "server.cuda-version":
            return server.cuda_version
        case "server.driver-version" | "server.dirver-version":
            return server.driver_version
        case "device.id":
            return str(device.number)
        case "device.name":
            return device.name
        case "device.phy-memory":
            return str(device.memory_mib)
    raise InvalidRequest("--filter", key, "must have one of the keys " + ", ".join(FILTER_KEYS))


def _passes(request: GpuRequest, server: Server, device: Device) -> bool:
    # different keys must all hold, of one key's values any: the vendor's own example repeats a key
    answers: dict[str, bool] = {}
    for key, wanted in request.filters:
        value = _value_of(key, server, device)
        if key == "device.name":
            holds = wanted.casefold() in value.casefold()
        elif key == "server.has-rdma":
            holds = wanted.lower() == value
        else:
            holds = wanted == value
        answers[key] = answers.get(key, False) or holds
    return all(answers.values())


def _listed(request: GpuRequest, server: Server) -> bool:
    if not request.servers:
        return True
    names = {server.key, server.address, server.name}
    return any(wanted in names for wanted in request.servers)


def candidates(request: GpuRequest, servers: Sequence[Server]) -> dict[str, list[tuple[int, int]]]:
    """For each server that could ever serve the request: its fitting devices as (number, MiB to take).

    Raises InvalidRequest for a filter whose key nobody knows.
    """
    found = {}
    for server in servers:
        if not _listed(request, server):
            continue
        fitting = [
            (device.number, needed)
            for device in server.devices
            if _passes(request, server, device)
            and 0 < (needed := request.memory_per_gpu(device.memory_mib)) <= device.memory_mib
        ]
        if len(fitting) >= request.gpus:
            found[server.key] = fitting
    return found


def choose(
    gpus: int,
    possible: Mapping[str, Sequence[tuple[int, int]]],
    free: Mapping[tuple[str, int], int],
    closed: frozenset[str] | set[str] = frozenset(),
) -> tuple[Share, ...] | None:
    """The shares to hand out now, all of one server, or None.

    `possible` comes from `candidates`, `free` is the free memory of each (server, device number), `closed`
    are servers that somebody earlier in the queue waits for. The fullest devices that still fit are taken,
    so that whole GPUs stay whole for those who need them.
    """
    best: tuple[int, tuple[Share, ...]] | None = None
    for key, devices in possible.items():
        if key in closed:
            continue
        fitting = sorted(
            (free[key, number] - needed, number, needed)
            for number, needed in devices
            if free.get((key, number), 0) >= needed
        )
        if len(fitting) < gpus:
            continue
        taken = fitting[:gpus]
        left = sum(rest for rest, _, _ in taken)
        if best is None or left < best[0]:
            numbers = sorted((number, needed) for _, number, needed in taken)
            best = left, tuple(Share(key, number, needed) for number, needed in numbers)
    return best[1] if best else None


def _size(gpus: int, memory_mib: int) -> str:
    return f"{gpus} GPUs with {memory_mib} MiB"


def never(request: GpuRequest, servers: Sequence[Server]) -> NeverSatisfiable:
    """The refusal for a request without candidates; `str()` of it is the client's `Error:` line."""
    if not any(server.devices for server in servers):
        asked = f"{request.gpus} GPUs"
        return NeverSatisfiable(request, f"no server can satisfy the request: {asked}; the pool has no GPUs")
    listed = [server for server in servers if _listed(request, server)]
    largest = max(
        (server for server in (listed or servers) if server.devices),
        key=lambda server: (len(server.devices), max(device.memory_mib for device in server.devices)),
        default=None,
    )
    # a share is of something: of the largest server's devices
    measured = largest.devices if largest else [device for server in servers for device in server.devices]
    total = max(device.memory_mib for device in measured)
    asked = f"{_size(request.gpus, request.memory_per_gpu(total))} of memory each"
    if not listed:
        known = ", ".join(server.key for server in servers)
        why = f"no server is called {';'.join(request.servers)}; there are {known}"
    elif largest is None:
        why = "the servers asked for have no GPUs"
    elif request.filters and not any(
        _passes(request, server, device) for server in listed for device in server.devices
    ):
        why = "no GPU passes the filters " + " ".join(f"{key}={value}" for key, value in request.filters)
    elif request.filters:
        passing = max(sum(_passes(request, one, device) for device in one.devices) for one in listed)
        has = _size(largest.device_count, total)
        why = f"the largest server has {has}, at most {passing} of one server pass the filters"
    else:
        why = f"the largest server has {_size(largest.device_count, total)}"
    return NeverSatisfiable(request, f"no server can satisfy the request: {asked}; {why}")
