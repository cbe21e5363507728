"""The values in messages as JSON, and back: plain ones, servers, shares, entries, issued tokens. Pure.

A reader passes over fields it doesn't know and takes the default of one that is missing and has one. All
plain fields of Device, Server, Holder and IssuedToken cross the wire by their names: one that is added needs
a default. Readers raise WrongValue.
"""

from __future__ import annotations

from math import isfinite

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.typed_lines import WrongValue
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import HELD, PROCESS, REMOTE, RESERVED, WAITING, Entry, Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_pool.inventory.nvidia.device_use import UsedDevice

    T = TypeVar("T")

NO_UNITS = -1  # of a limit in units, of which 0 is one
MOST_AT_ONCE = 256  # tokens in one message; each has at most some 400 bytes
_LARGEST = 1 << 53  # what every reader of JSON, and SQLite, keeps exactly
_STATES = (WAITING, HELD)
_KINDS = (PROCESS, RESERVED, REMOTE)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """What is told of a token in force that an issuer has issued; never its text.

    `name` is the whole one, times are in seconds since the epoch, no limit is 0. Of `units`, where 0 is a
    limit, none is -1; a service before this limit leaves the field out.
    """

    token_id: str
    name: str
    created_at: float
    expires_at: float
    gpus: int = 0
    share: float = 0.0
    leases: int = 0
    waiting: int = 0
    units: int = NO_UNITS


def text(value: object) -> str:
    """Text of any length that can be written as UTF-8."""
    if not isinstance(value, str):
        raise WrongValue("must be text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise WrongValue("must be text without half characters") from None
    return value


def integer(value: object) -> int:
    """A whole number of at most 53 bits."""
    if type(value) is not int or abs(value) > _LARGEST:
        raise WrongValue("must be a whole number of at most 53 bits")
    return value


def number(value: object) -> float:
    """A finite number."""
    if type(value) is int and abs(value) <= _LARGEST:
        return float(value)
    if type(value) is not float or not isfinite(value):
        raise WrongValue("must be a number")
    return value


def boolean(value: object) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise WrongValue("must be true or false")
    return value


def items(value: object) -> list[object]:
    """A list of anything."""
    if not isinstance(value, list):
        raise WrongValue("must be a list")
    return value


PLAIN: dict[str, Callable[[object], object]] = {
    "int": integer,
    "float": number,
    "bool": boolean,
    "str": text,
}
"""Readers of the plain values, by annotation; they are written as they are."""


def fields_to_json(value: Any) -> dict[str, object]:
    """The plain fields of one of the four classes, which are all but a server's devices."""
    return {name: getattr(value, name) for name in _plain_fields(type(value))}


def token_from_json(value: object) -> IssuedToken:
    """The opposite of `fields_to_json`."""
    return _made(IssuedToken, value)


def server_to_json(server: Server) -> dict[str, object]:
    """One server with its devices."""
    return {**fields_to_json(server), "devices": [fields_to_json(device) for device in server.devices]}


def server_from_json(value: object) -> Server:
    """The opposite."""
    devices = tuple(_made(Device, item) for item in items(_object(value).get("devices")))
    return _made(Server, value, devices=devices)


def shares_to_json(shares: Sequence[Share]) -> list[list[object]]:
    """Each share as [server key, device number, MiB]."""
    return [[share.server, share.number, share.memory_mib] for share in shares]


def shares_from_json(value: object) -> tuple[Share, ...]:
    """The opposite."""
    found = []
    for item in items(value):
        parts = items(item)
        if len(parts) != 3:
            raise WrongValue("must be a list of [server, device, MiB]")
        found.append(Share(text(parts[0]), integer(parts[1]), integer(parts[2])))
    return tuple(found)


def request_from_json(value: object) -> GpuRequest:
    """The opposite of `GpuRequest.to_json`. Raises InvalidRequest if it is a wrong request."""
    return GpuRequest.from_json(_object(value))


def entry_to_json(entry: Entry) -> dict[str, object]:
    """An entry of the ledger with its holder. It contains no secret; `activity` only where that is known."""
    fields: dict[str, object] = {
        "number": entry.number,
        "id": entry.entry_id,
        "state": entry.state,
        "kind": entry.kind,
        "request": entry.request.to_json(),
        "holder": fields_to_json(entry.holder),
        "servers": list(entry.servers),
        "requested_at": entry.requested_at,
        "granted_at": entry.granted_at,
        "expires_at": entry.expires_at,
        "shares": shares_to_json(entry.shares),
    }
    if entry.activity is not None:
        from bitfusion_client.kernel_state.activity import activity_to_json

        fields["activity"] = activity_to_json(entry.activity)
    return fields


def entry_from_json(value: object) -> Entry:
    """The opposite."""
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
        _made(Holder, fields.get("holder")),
        tuple(text(item) for item in items(fields.get("servers"))),
        number(fields.get("requested_at")),
        _number_or_none(fields.get("granted_at")),
        _number_or_none(fields.get("expires_at")),
        shares_from_json(fields.get("shares")),
        _activity(fields.get("activity")),
    )


def device_use_to_json(use: Sequence[UsedDevice]) -> list[list[object]]:
    """Each device as [server key, device number, MiB of others, their programs, percent or null, problem]."""
    return [
        [server, number, found.foreign_mib, found.programs, found.percent, found.problem]
        for server, number, found in use
    ]


def device_use_from_json(value: object) -> tuple[UsedDevice, ...]:
    """The opposite."""
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


def _activity(value: object) -> KernelActivity | None:
    """What a kernel does; None also where a later version says what this one does not know."""
    if value is None:
        return None
    from bitfusion_client.kernel_state.activity import UNKNOWN, activity_from_json

    activity = activity_from_json(value)
    return None if activity == UNKNOWN else activity


def _number_or_none(value: object) -> float | None:
    return None if value is None else number(value)


def _plain_fields(kind: type[object]) -> dict[str, Callable[[object], object]]:
    return {name: PLAIN[plain] for name, plain in kind.__annotations__.items() if plain in PLAIN}


def _made(kind: type[T], value: object, **others: object) -> T:
    fields = _object(value)
    found = {name: read(fields[name]) for name, read in _plain_fields(kind).items() if name in fields}
    try:
        return kind(**found, **others)
    except TypeError:  # a field without a default is missing
        raise WrongValue("misses a field") from None
