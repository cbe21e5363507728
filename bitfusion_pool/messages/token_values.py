"""What is told of a token that an issuer has issued, as a JSON value and back; never its text. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.messages.plain_values import WrongValue, integer, items, number, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NO_UNITS = -1  # of a limit in units, of which 0 is one
MOST_AT_ONCE = 256  # in one message; each has at most some 400 bytes


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token in force. `name` is the whole one, times are in seconds since the epoch, no limit is 0.

    Of `units`, where 0 is a limit, none is -1; a service before this limit leaves the field out.
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


_FIELDS: dict[str, Callable[[object], object]] = {
    "token_id": text,
    "name": text,
    "created_at": number,
    "expires_at": number,
    "gpus": integer,
    "share": number,
    "leases": integer,
    "waiting": integer,
    "units": integer,
}


def token_to_json(token: IssuedToken) -> object:
    """The value in a message."""
    return {name: getattr(token, name) for name in _FIELDS}


def token_from_json(value: object) -> IssuedToken:
    """The opposite. Raises WrongValue."""
    if not isinstance(value, dict):
        raise WrongValue("must be a token")
    found: dict[str, Any] = {name: read(value[name]) for name, read in _FIELDS.items() if name in value}
    try:
        return IssuedToken(**found)
    except TypeError:  # a field without a default is missing
        raise WrongValue("misses a field") from None


def tokens_to_json(tokens: tuple[IssuedToken, ...]) -> object:
    """The value in a message."""
    return [token_to_json(one) for one in tokens]


def tokens_from_json(value: object) -> tuple[IssuedToken, ...]:
    """The opposite. Raises WrongValue."""
    return tuple(token_from_json(one) for one in items(value))
