"""From what a browser sends to the question for a kernel's proxy. Pure.

Nothing of a browser's text reaches a command: a size is read into a `GpuRequest`, and the words are made of
that. Everything else is a fixed word.
"""

from __future__ import annotations

import json
from typing import Any

from bitfusion_client.command.command_line import format_options
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.one_line import one_line
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import SMALLEST_GPU_MEMORY_MIB
from jupyter_ext.server.errors import WrongRequest

Json = dict[str, Any]

LARGEST_BODY = 4096
"""Bytes; the largest request of our own page has about 100."""

REQUEST_FIELDS = ("gpus", "partial", "memory_mib", "now")

WORDS: dict[str, Json] = {
    "acquire": {"words": "acquire"},
    "release": {"words": "release -y"},
    "cancel": {"words": "cancel"},
    "keep": {"do": "keep"},
}
"""The questions without a choice, by the last part of their address."""

REQUEST = "request"
ACTIONS = (REQUEST, *WORDS)

_AN_OBJECT = 'Send a JSON object, such as {"gpus": 1, "partial": 0.5}, or {} if there is nothing to choose.'


def read_body(body: bytes) -> Json:
    """The JSON object of a request; an empty body counts as an empty one. Raises WrongRequest."""
    if len(body) > LARGEST_BODY:
        raise WrongRequest(f"The body has {len(body)} bytes; {LARGEST_BODY} are allowed.", _AN_OBJECT)
    if not body.strip():
        return {}
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise WrongRequest("The body is not JSON in UTF-8.", _AN_OBJECT) from None
    if not isinstance(value, dict):
        raise WrongRequest("The body is JSON, but not an object.", _AN_OBJECT)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def question(action: str, body: Json) -> Json:
    """What the proxy is asked for an action, one of `ACTIONS`.

    Raises:
        WrongRequest: A field is unknown, or of the wrong kind.
        InvalidRequest: The size cannot be.
    """
    if action == REQUEST:
        return {"words": request_words(body)}
    _check_fields(action, body, ())
    return dict(WORDS[action])


def request_words(body: Json) -> str:
    """The line for the chosen size, ``request -n 1 -p 0.5 --now -y``. Raises as `question`."""
    _check_fields(REQUEST, body, REQUEST_FIELDS)
    now = body.get("now", False)
    if not isinstance(now, bool):
        raise WrongRequest(f'"now" is {_shown(now)}; it must be true or false.', "Leave it out for false.")
    size = GpuRequest.from_json({name: body[name] for name in REQUEST_FIELDS[:3] if name in body})
    if size.memory_mib is not None and size.memory_mib < SMALLEST_GPU_MEMORY_MIB:
        allowed = f"must be at least {SMALLEST_GPU_MEMORY_MIB} MiB"
        raise InvalidRequest("memory_mib", size.memory_mib, allowed)
    return " ".join([REQUEST, size_words(size), *(("--now", "-y") if now else ())])


def size_words(size: GpuRequest) -> str:
    """The options that ask for just this, ``-n 1 -p 0.5``.

    Whole GPUs are written as such: without a share the one that was chosen before would stay.
    """
    whole = size.partial is None and size.memory_mib is None
    return " ".join(format_options(GpuRequest(size.gpus, 1.0 if whole else size.partial, size.memory_mib)))


def _check_fields(action: str, body: Json, allowed: tuple[str, ...]) -> None:
    for name in body:
        if name not in allowed:
            fields = ", ".join(allowed) or "none"
            raise WrongRequest(
                f"{_shown(name)} is not a field of {action}; the fields are: {fields}.", "Leave it out."
            )


def _shown(value: object) -> str:
    return one_line(json.dumps(value), 100)
