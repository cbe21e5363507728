"""The types that fields of messages may have, by their annotation: how each becomes JSON and back. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.messages import plain_values, pool_values, token_values
from bitfusion_pool.messages.plain_values import WrongValue

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["FIELD_TYPES", "FieldType", "WrongValue"]


@dataclass(frozen=True, slots=True)
class FieldType:
    """How values of one type are written and read; `from_json` raises WrongValue."""

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
