"""Servers, shares and entries as JSON values, and back. Pure.

A reader passes over fields it doesn't know and takes the default of one that is missing and has one.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import HELD, PROCESS, REMOTE, RESERVED, WAITING, Entry, Holder
from bitfusion_pool.messages.plain_values import (
    WrongValue,
    boolean,
    integer,
    items,
    number,
    number_or_none,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from bitfusion_pool.inventory.nvidia.device_use import UsedDevice

    T = TypeVar("T")

_DEVICE: dict[str, Callable[[object], object]] = {
    "number": integer,
    "name": text,
    "memory_mib": integer,
    "simulated": boolean,
    "uuid": text,
}
_SERVER: dict[str, Callable[[object], object]] = {
    "name": text,
    "address": text,
    "port": integer,
    "dispatcher_port": integer,
    "uuid": text,
    "hostname": text,
    "has_rdma": boolean,
    "cuda_version": text,
    "driver_version": text,
}
_HOLDER: dict[str, Callable[[object], object]] = {
    "label": text,
    "user": text,
    "pid": integer,
    "host": text,
    "uid": integer,
}
_STATES = (WAITING, HELD)
_KINDS = (PROCESS, RESERVED, REMOTE)


def servers_to_json(servers: Sequence[Server]) -> list[dict[str, object]]:
    """The servers with their devices."""
    return [server_to_json(server) for server in servers]


def servers_from_json(value: object) -> tuple[Server, ...]:
    """The opposite. Raises WrongValue."""
    return tuple(server_from_json(item) for item in items(value))


def server_to_json(server: Server) -> dict[str, object]:
    """One server with its devices."""
    devices = [{name: getattr(device, name) for name in _DEVICE} for device in server.devices]
    return {**{name: getattr(server, name) for name in _SERVER}, "devices": devices}


def server_from_json(value: object) -> Server:
    """The opposite. Raises WrongValue."""
    fields = _object(value)
    devices = tuple(_made(Device, _values(_object(item), _DEVICE)) for item in items(fields.get("devices")))
    return _made(Server, {**_values(fields, _SERVER), "devices": devices})


def shares_to_json(shares: Sequence[Share]) -> list[list[object]]:
    """Each share as [server key, device number, MiB]."""
    return [[share.server, share.number, share.memory_mib] for share in shares]


def shares_from_json(value: object) -> tuple[Share, ...]:
    """The opposite. Raises WrongValue."""
    found = []
    for item in items(value):
        parts = items(item)
        if len(parts) != 3:
            raise WrongValue("must be a list of [server, device, MiB]")
        found.append(Share(text(parts[0]), integer(parts[1]), integer(parts[2])))
    return tuple(found)


def request_to_json(request: GpuRequest) -> dict[str, object]:
    """As `GpuRequest.to_json` has it."""
    return request.to_json()


def request_from_json(value: object) -> GpuRequest:
    """The opposite. Raises WrongValue if it is no object, InvalidRequest if it is a wrong request."""
    return GpuRequest.from_json(_object(value))


def entry_to_json(entry: Entry) -> dict[str, object]:
    """An entry of the ledger with its holder. It contains no secret."""
    return {
        "number": entry.number,
        "id": entry.entry_id,
        "state": entry.state,
        "kind": entry.kind,
        "request": entry.request.to_json(),
        "holder": {name: getattr(entry.holder, name) for name in _HOLDER},
        "servers": list(entry.servers),
        "requested_at": entry.requested_at,
        "granted_at": entry.granted_at,
        "expires_at": entry.expires_at,
        "shares": shares_to_json(entry.shares),
    }


def entry_from_json(value: object) -> Entry:
    """The opposite. Raises WrongValue."""
    fields = _object(value)
    state, kind = text(fields.get("state")), text(fields.get("kind"))
    if state not in _STATES or kind not in _KINDS:
        raise WrongValue(f"has the state {state} or the kind {kind}, which nobody knows")
    try:
        request = request_from_json(fields.get("request"))
    except InvalidRequest as error:
        raise WrongValue(str(error)) from None
    return Entry(
        integer(fields.get("number")),
        text(fields.get("id")),
        state,
        kind,
        request,
        _made(Holder, _values(_object(fields.get("holder")), _HOLDER)),
        tuple(text(item) for item in items(fields.get("servers"))),
        number(fields.get("requested_at")),
        number_or_none(fields.get("granted_at")),
        number_or_none(fields.get("expires_at")),
        shares_from_json(fields.get("shares")),
    )


def entries_to_json(entries: Sequence[Entry]) -> list[dict[str, object]]:
    """Several entries, in the same order."""
    return [entry_to_json(entry) for entry in entries]


def entries_from_json(value: object) -> tuple[Entry, ...]:
    """The opposite. Raises WrongValue."""
    return tuple(entry_from_json(item) for item in items(value))


def device_use_to_json(use: Sequence[UsedDevice]) -> list[list[object]]:
    """Each device as [server key, device number, MiB of others, their programs, percent or null, problem]."""
    return [
        [server, number, found.foreign_mib, found.programs, found.percent, found.problem]
        for server, number, found in use
    ]


def device_use_from_json(value: object) -> tuple[UsedDevice, ...]:
    """The opposite. Raises WrongValue."""
    rows = items(value)
    if not rows:
        return ()
    from bitfusion_pool.inventory.nvidia.device_use import DeviceUse

    found = []
    for row in rows:
        parts = items(row)
        if len(parts) != 6:
            raise WrongValue("must be a list of [server, device, MiB, programs, percent, problem]")
        server, number, foreign, programs, percent, problem = parts
        busy = None if percent is None else integer(percent)
        use = DeviceUse(integer(foreign), text(programs), busy, text(problem))
        found.append((text(server), integer(number), use))
    return tuple(found)


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise WrongValue("must be an object")
    return value


def _values(fields: Mapping[str, object], types: Mapping[str, Callable[[object], object]]) -> dict[str, Any]:
    return {name: from_json(fields[name]) for name, from_json in types.items() if name in fields}


def _made(kind: Callable[..., T], values: Mapping[str, Any]) -> T:
    try:
        return kind(**values)
    except TypeError:  # a field without a default is missing
        raise WrongValue("misses a field") from None
