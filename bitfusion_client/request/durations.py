"""Durations as the Go client spells them: parse and format ``30m``, ``2m30s``, ``1.5h``."""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.request_rules import ALLOWED_TIMEOUT

# In nanoseconds. Units of two letters first, so that "ms" is not read as minutes and a stray "s".
_UNITS = (
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
)


def parse_duration(text: str) -> float:
    """Seconds of ``30m``, ``2m30s``, ``1.5h`` or, without a unit, ``90``. Raises InvalidRequest."""
    rest = text.strip()
    if not rest or len(rest) > 64:
        raise InvalidRequest("timeout", text, ALLOWED_TIMEOUT)
    total = 0
    bare = all(letter in "0123456789." for letter in rest)
    if bare:
        rest += "s"
    while rest:
        length = 0
        while length < len(rest) and rest[length] in "0123456789.":
            length += 1
        number, rest = rest[:length], rest[length:]
        unit, size = next((known for known in _UNITS if rest.startswith(known[0])), ("", 0))
        if not size:
            raise InvalidRequest("timeout", text, ALLOWED_TIMEOUT)
        rest = rest[len(unit) :]
        whole, _, fraction = number.partition(".")
        if "." in fraction or not whole + fraction:
            raise InvalidRequest("timeout", text, ALLOWED_TIMEOUT)
        total += int(whole + fraction) * size // 10 ** len(fraction)
    return total / 1_000_000_000


def format_duration(seconds: float) -> str:
    """Seconds as Go prints a duration, to the nanosecond: ``2m30s``, ``30m0s``, ``1h0m0s``, ``1.5s``."""
    nanoseconds = round(seconds * 1_000_000_000)
    if nanoseconds < 0:
        return "-" + format_duration(-seconds)
    if 0 < nanoseconds < 1_000_000_000:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if nanoseconds >= size:
                return _with_fraction(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    shown = _with_fraction(rest, 1_000_000_000) + "s"
    if hours:
        return f"{hours}h{minutes}m{shown}"
    return f"{minutes}m{shown}" if minutes else shown


def format_duration_short(seconds: float) -> str:
    """As `format_duration`, without zero parts at the end: ``30m``, ``2h``. For command lines and people."""
    shown = format_duration(seconds)
    if shown.endswith("m0s"):
        shown = shown[:-2]
    if shown.endswith("h0m"):
        shown = shown[:-2]
    return shown


def _with_fraction(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).rjust(len(str(size)) - 1, '0').rstrip('0')}"
