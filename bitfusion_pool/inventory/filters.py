"""Which servers and GPUs a request accepts: `--filter KEY=VALUE` and `--server_list`."""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.servers import Device, Server

FILTER_KEYS = (
    "server.addr",
    "server.hostname",
    "server.has-rdma",
    "server.cuda-version",
    "server.driver-version",
    "server.dirver-version",  # as the vendor's README spells it
    "device.id",
    "device.name",
    "device.phy-memory",
)


def is_listed(request: GpuRequest, server: Server) -> bool:
    """Whether the request names this server by key, address or name, or names no server at all."""
    if not request.servers:
        return True
    names = {server.key, server.address, server.name}
    return any(wanted in names for wanted in request.servers)


def accepts(request: GpuRequest, server: Server, device: Device) -> bool:
    """Whether the device passes the filters of the request.

    Filters with different keys must all match; of several with the same key, any, because the vendor's own
    example repeats a key.

    Raises:
        InvalidRequest: A filter has an unknown key.
    """
    matches: dict[str, bool] = {}
    for key, wanted in request.filters:
        value = _value_of(key, server, device)
        if key == "device.name":
            matched = wanted.casefold() in value.casefold()
        elif key == "server.has-rdma":
            matched = wanted.lower() == value
        else:
            matched = wanted == value
        matches[key] = matches.get(key, False) or matched
    return all(matches.values())


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
