"""Reads the value of each setting from text or from a config file, as the type that the kernel uses. Pure.

Each function raises ValueError or TypeError for what it cannot read, or InvalidRequest, which says what is
allowed in a request.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.gpu_request import GpuRequest

ACQUIRE = ("first_cell", "start", "start_and_wait", "manual")
"""When GPUs are asked for."""

SHORTEST_IDLE_RELEASE = 60.0
"""Seconds: a warning needs half of it to be read and acted on, and work is looked for every few seconds."""


def gpus(value: object) -> int:
    """A number of GPUs."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    number = int(value.strip()) if isinstance(value, str) else value
    GpuRequest(gpus=number)
    return number


def partial(value: object) -> float:
    """A share of a GPU's memory."""
    from bitfusion_client.request.shares import parse_share

    return parse_share(value)


def memory(value: object) -> int:
    """An amount of memory in MiB."""
    from bitfusion_client.request.quantities import parse_gpu_memory

    return parse_gpu_memory(value)


def filters(value: object) -> tuple[tuple[str, str], ...]:
    """Pairs of key and value."""
    pairs = []
    for word in words(value):
        key, equals, wanted = word.partition("=")
        if not equals:
            raise ValueError
        pairs.append((key.strip(), wanted.strip()))
    return GpuRequest(filters=tuple(pairs)).filters


def servers(value: object) -> tuple[str, ...]:
    """Addresses of servers."""
    return GpuRequest(servers=words(value)).servers


def timeout(value: object) -> float:
    """The longest wait for GPUs, in seconds."""
    from bitfusion_client.request.durations import parse_duration

    seconds = parse_duration(value) if isinstance(value, str) else _number(value)
    return float(GpuRequest(timeout=seconds).timeout or 0)


def acquire(value: object) -> str:
    """One of `ACQUIRE`."""
    if value not in ACQUIRE:
        raise ValueError
    return str(value)


def absolute_path(value: object) -> str:
    """The path of a file; `~` is the user's home."""
    if not isinstance(value, str) or not os.path.isabs(os.path.expanduser(value)):
        raise ValueError
    return os.path.expanduser(value)


def seconds(value: object) -> float:
    """A time that may be 0."""
    number = _number(value)
    if not 0 <= number < 1e9:
        raise ValueError
    return number


def idle_release(value: object) -> float:
    """The time without work after which the GPU is given back, in seconds; 0 if it never is."""
    from bitfusion_client.request.durations import parse_duration

    text = value.strip().lower() if isinstance(value, str) else value
    try:
        number = 0.0 if text == "off" else parse_duration(text) if isinstance(text, str) else _number(text)
    except InvalidRequest:
        raise ValueError from None  # it speaks of `timeout`
    if number and not SHORTEST_IDLE_RELEASE <= number < 1e9:
        raise ValueError
    return number


def on_off(value: object) -> bool:
    """A switch."""
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("on", "off"):
        raise ValueError
    return text == "on"


def words(value: object) -> tuple[str, ...]:
    """A list of text, or text in which `;` separates the items."""
    parts = value.split(";") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise TypeError
    return tuple(part.strip() for part in parts if part.strip())


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    return float(value)
