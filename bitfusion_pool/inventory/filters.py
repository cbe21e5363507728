"""Which servers and GPUs a request accepts: `--filter KEY=VALUE` and `--server_list`."""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.servers import Device, Server

_VALUES: dict[str, Callable[[Server, Device], str]] = {
    "server.addr": lambda server, _: server.address,
    "server.hostname": lambda server, _: server.hostname or server.name,
    "server.has-rdma": lambda server, _: "true" if server.has_rdma else "false",
    "server.cuda-version": lambda server, _: server.cuda_version,
    "server.driver-version": lambda server, _: server.driver_version,
    "server.dirver-version": lambda server, _: server.driver_version,  # as the vendor's README spells it
    "device.id": lambda _, device: str(device.number),
    "device.name": lambda _, device: device.name,
    "device.phy-memory": lambda _, device: str(device.memory_mib),
}


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
        if key not in _VALUES:
            raise InvalidRequest("--filter", key, "must have one of the keys " + ", ".join(_VALUES))
        value = _VALUES[key](server, device)
        if key == "device.name":
            matched = wanted.casefold() in value.casefold()
        elif key == "server.has-rdma":
            matched = wanted.lower() == value
        else:
            matched = wanted == value
        matches[key] = matches.get(key, False) or matched
    return all(matches.values())
