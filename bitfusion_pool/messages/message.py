"""What the messages between client and service have in common: lines and types of fields. Pure.

Each is one line of `bitfusion_client.typed_lines`, which says how versions of both ends may differ.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.typed_lines import TypedLines
from bitfusion_pool.json_text import compact, loads
from bitfusion_pool.messages import pool_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PROTOCOL = 1
LONGEST_FROM_CLIENT = 16 << 10  # bytes of a line, without its end
LONGEST_FROM_SERVICE = 256 << 10


def _each(write: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda values: [write(value) for value in values]


def _read_each(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: tuple(read(item) for item in pool_values.items(value))


_FORMS: dict[str, tuple[Callable[[Any], object], Callable[[object], object]]] = {
    "GpuRequest": (GpuRequest.to_json, pool_values.request_from_json),
    "Server": (pool_values.server_to_json, pool_values.server_from_json),
    "Entry": (pool_values.entry_to_json, pool_values.entry_from_json),
    "IssuedToken": (pool_values.fields_to_json, pool_values.token_from_json),
    "tuple[Share, ...]": (pool_values.shares_to_json, pool_values.shares_from_json),
    "tuple[UsedDevice, ...]": (pool_values.device_use_to_json, pool_values.device_use_from_json),
}
for _name in ("Server", "Entry", "IssuedToken"):
    _FORMS[f"tuple[{_name}, ...]"] = _each(_FORMS[_name][0]), _read_each(_FORMS[_name][1])
_WRITE = {name: write for name, (write, _) in _FORMS.items()}
_READ = {**pool_values.PLAIN, **{name: read for name, (_, read) in _FORMS.items()}}


def lines_of(messages: tuple[type[Message], ...] = ()) -> TypedLines:
    """How these messages are written and read."""
    return TypedLines({message.TYPE: message for message in messages}, _WRITE, _READ, compact, loads)


@dataclass(frozen=True, slots=True)
class Message:
    """What all messages have in common: `TYPE`, the name on the wire, and fields of the types above."""

    TYPE = ""

    def format(self) -> bytes:
        """The message as one line, with its line end."""
        return _ANY.format(self)


_ANY = lines_of()


def encoded_size(value: object) -> int:
    """How many bytes a JSON value has within a message."""
    return len(compact(value))
