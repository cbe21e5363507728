"""Emulation settings: a switch for everything nobody knows about the real Bitfusion client.

Users set them under the name *manners*: ``BITFUSION_POOL_MANNERS="stream=stdout,sigint=die"``, or the table
``[manners]`` of pool.toml. The environment wins, key by key. docs/reference/pool-toml.md has every one.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT_NAME = "BITFUSION_POOL_MANNERS"
TABLE = "manners"  # the key in pool.toml and in the ledger
# the first value of each is the default
CHOICES: dict[str, tuple[str, ...]] = {
    "waiting_text": ("places", "none"),
    "when_full": ("wait", "fail"),
    "exit_codes": ("child", "one", "zero"),
    "stream": ("stderr", "stdout", "split"),
    "sigint": ("forward", "die", "ignore"),
    "sigterm": ("forward", "die", "ignore"),
    "servers": ("reachable", "unreachable"),
    "token": ("valid", "expired", "refused"),
    "telemetry": ("line", "on", "off"),
    "backup_warning": ("off", "on"),
}
DURATIONS: dict[str, str] = {"slow": "0", "auto_release": "10m"}


@dataclass(frozen=True, slots=True)
class Emulation:
    """One value for every setting. `slow` and `auto_release` are in seconds."""

    waiting_text: str = "places"
    when_full: str = "wait"
    exit_codes: str = "child"
    stream: str = "stderr"
    sigint: str = "forward"
    sigterm: str = "forward"
    servers: str = "reachable"
    token: str = "valid"
    telemetry: str = "line"
    backup_warning: str = "off"
    slow: float = 0.0
    auto_release: float = 600.0


def split_settings(text: str) -> dict[str, str]:
    """Settings as they stand in the environment, ``"a=b,c=d"``, by name; blanks around the parts are dropped.

    Raises:
        InvalidRequest: A part has no ``=``.
    """
    found = {}
    for part in text.replace(";", ",").split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidRequest(TABLE, part.strip(), "must be name=value, several joined by ,")
        found[key.strip()] = value.strip()
    return found


def join_settings(values: Mapping[str, str]) -> str:
    """The opposite of `split_settings`."""
    return ",".join(f"{key}={value}" for key, value in values.items())


def emulation_from(*sources: Mapping[str, str]) -> Emulation:
    """The emulation that several mappings describe; later ones win.

    Raises:
        InvalidRequest: A name or value is unknown.
    """
    values: dict[str, str] = {}
    for source in sources:
        values.update(source)
    checked: dict[str, object] = {}
    for name, value in values.items():
        if name in CHOICES:
            if value not in CHOICES[name]:
                raise InvalidRequest(f"{TABLE}.{name}", value, "must be " + " or ".join(CHOICES[name]))
            checked[name] = value
        elif name in DURATIONS:
            checked[name] = _seconds(name, value)
        else:
            known = ", ".join((*CHOICES, *DURATIONS))
            raise InvalidRequest(TABLE, name, f"must be one of {known}")
    return Emulation(**checked)  # type: ignore[arg-type]  # checked above, name by name


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings in BITFUSION_POOL_MANNERS.

    Raises:
        InvalidRequest: See `split_settings`.
    """
    return split_settings(environ.get(ENVIRONMENT_NAME, ""))


def _seconds(name: str, text: str) -> float:
    try:
        return parse_duration(text)
    except InvalidRequest:
        allowed = "must be a duration like 0.5, 90, 10m or 2m30s"
        raise InvalidRequest(f"{TABLE}.{name}", text, allowed) from None
