"""The text a person reads for a request, and back."""

from __future__ import annotations

from bitfusion_client.durations import format_duration_short, parse_duration, plain_number, shift_point
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request import GpuRequest

ALLOWED_TEXT = "must read like 1 GPU, 2 GPUs × 50 % or 1 GPU × 8192 MiB"


def format_description(request: GpuRequest) -> str:
    """``2 GPUs × 50 %, device.name=Tesla, on 10.0.0.5:56001 or 10.0.0.6:56001, waiting at most 30m``."""
    parts = ["1 GPU" if request.gpus == 1 else f"{request.gpus} GPUs"]
    if request.partial is not None:
        parts[0] += f" × {shift_point(plain_number(request.partial), 2)} %"
    if request.memory_mib is not None:
        parts[0] += f" × {request.memory_mib} MiB"
    parts += [f"{key}={value}" for key, value in request.filters]
    if request.servers:
        parts.append("on " + " or ".join(request.servers))
    if request.timeout is not None:
        parts.append("waiting at most " + format_duration_short(request.timeout))
    return ", ".join(parts)


def parse_description(text: str) -> GpuRequest:
    """The request `format_description` wrote; filter values with ``, `` in them cannot be told apart.

    Also accepts ``x`` or ``*`` for ×. Raises InvalidRequest.
    """
    size, *parts = [part.strip() for part in text.split(", ")]
    words = size.replace("×", " ").replace("*", " ").replace("%", " % ").split()
    if len(words) > 2 and words[2] in ("x", "X"):
        del words[2]
    if len(words) not in (2, 4) or words[1].lower() not in ("gpu", "gpus") or not _whole(words[0]):
        raise InvalidRequest("gpus", text, ALLOWED_TEXT)
    values: dict[str, object] = {"gpus": int(words[0])}
    if len(words) == 4:
        number, unit = words[2:]
        if unit == "%" and number.replace(".", "", 1).isdigit() and number.isascii():
            values["partial"] = float(_hundredth(number))
        elif unit == "MiB" and _whole(number):
            values["memory_mib"] = int(number)
        else:
            raise InvalidRequest("gpus", text, ALLOWED_TEXT)
    filters: list[tuple[str, str]] = []
    for part in parts:
        key, equals, value = part.partition("=")
        if part.startswith("waiting at most "):
            values["timeout"] = parse_duration(part[len("waiting at most ") :])
        elif part.startswith("on "):
            values["servers"] = tuple(part[len("on ") :].split(" or "))
        elif equals:
            filters.append((key, value))
        else:
            raise InvalidRequest("gpus", text, ALLOWED_TEXT)
    values["filters"] = tuple(filters)
    return GpuRequest(**values)  # type: ignore[arg-type]  # the types are what the branches above make


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _hundredth(percent: str) -> str:
    return shift_point(percent, -2)
