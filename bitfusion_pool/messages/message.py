"""Reading and writing one message: an object of JSON with its `type` and the fields of its class. Pure.

Versions of client and service may differ: fields and types may be added, none removed or renamed. Whoever
reads passes over what he doesn't know; a field with a default may be missing.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import shown_value
from bitfusion_pool.json_text import compact, loads
from bitfusion_pool.messages import plain_values, pool_values, token_values
from bitfusion_pool.messages.plain_values import WrongValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

PROTOCOL = 1
LONGEST_FROM_CLIENT = 16 << 10  # bytes of a line, without its end
LONGEST_FROM_SERVICE = 256 << 10


@dataclass(frozen=True, slots=True)
class FieldType:
    """How values of one type of a field are written and read; `from_json` raises WrongValue."""

    to_json: Callable[[Any], object]
    from_json: Callable[[object], object]


def _as_it_is(value: object) -> object:
    return value


FIELD_TYPES: dict[str, FieldType] = {
    "int": FieldType(_as_it_is, plain_values.integer),
    "float": FieldType(_as_it_is, plain_values.number),
    "bool": FieldType(_as_it_is, plain_values.boolean),
    "str": FieldType(_as_it_is, plain_values.text),
    "GpuRequest": FieldType(pool_values.request_to_json, pool_values.request_from_json),
    "Server": FieldType(pool_values.server_to_json, pool_values.server_from_json),
    "tuple[Server, ...]": FieldType(pool_values.servers_to_json, pool_values.servers_from_json),
    "tuple[Share, ...]": FieldType(pool_values.shares_to_json, pool_values.shares_from_json),
    "tuple[UsedDevice, ...]": FieldType(pool_values.device_use_to_json, pool_values.device_use_from_json),
    "IssuedToken": FieldType(token_values.token_to_json, token_values.token_from_json),
    "tuple[IssuedToken, ...]": FieldType(token_values.tokens_to_json, token_values.tokens_from_json),
    "Entry": FieldType(pool_values.entry_to_json, pool_values.entry_from_json),
    "tuple[Entry, ...]": FieldType(pool_values.entries_to_json, pool_values.entries_from_json),
}
"""By the annotation of a field."""


class InvalidMessage(ValueError):
    """A line that is no message, or a message with a field that is missing or wrong; `str()` says which."""


@dataclass(frozen=True, slots=True)
class Message:
    """What all messages have in common: `TYPE`, the name on the wire, and fields of `FIELD_TYPES`."""

    TYPE = ""

    def format(self) -> bytes:
        """The message as one line, with its line end."""
        fields = {
            name: FIELD_TYPES[annotation].to_json(getattr(self, name))
            for name, annotation in type(self).__annotations__.items()
        }
        return compact({"type": self.TYPE, **fields}).encode("ascii") + b"\n"


def parse_message(line: bytes, known: Mapping[str, type[Message]]) -> Message | None:
    """The message in one line.

    Args:
        line: One line, of limited length, with or without its end.
        known: The messages that this end understands, by their type.

    Returns:
        None if its type is not known.

    Raises:
        InvalidMessage: See there.
    """
    fields = _read_object(line)
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage('it has no "type"')
    message = known.get(kind)
    return None if message is None else _build(message, fields)


def encoded_size(value: object) -> int:
    """How many bytes a JSON value has within a message."""
    return len(compact(value))


def _build(message: type[Message], fields: Mapping[str, object]) -> Message:
    defaults: Mapping[str, object] = getattr(message, "_defaults", {})
    values: dict[str, Any] = {}
    for name, annotation in message.__annotations__.items():
        if name not in fields:
            if name not in defaults:
                raise InvalidMessage(f"{message.TYPE}: {name} is missing")
            continue
        try:
            values[name] = FIELD_TYPES[annotation].from_json(fields[name])
        except WrongValue as error:
            shown = shown_value(fields[name])
            raise InvalidMessage(f'{message.TYPE}: {name} is "{shown}" and {error}') from None
    return message(**values)


def _read_object(line: bytes) -> dict[str, object]:
    try:
        value = loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidMessage("it is not UTF-8") from None
    except (ValueError, RecursionError):
        raise InvalidMessage("it is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidMessage("it is no JSON object")
    return value
