"""The annotations ``bitfusion.io/request`` and ``bitfusion-client/filter``: parse and format."""

from __future__ import annotations

import json
import shlex

from bitfusion_client.command.command_line import ALL_OPTIONS, WrongOption, format_options, parse_request_text
from bitfusion_client.errors import InvalidRequest, UsageError
from bitfusion_client.kubernetes.names import ANNOTATION_FILTER, ANNOTATION_REQUEST
from bitfusion_client.one_line import shown_value
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import parse_memory
from bitfusion_client.request.request_rules import ALLOWED_FILTER, ALLOWED_ONE_SIZE
from bitfusion_client.request.shares import parse_share

# Characters: nobody may keep admission busy with one annotation.
LONGEST_REQUEST = 4096
LONGEST_FILTER = 1024

ALLOWED_TEXT = "must be text"
ALLOWED_LENGTH = f"must be at most {LONGEST_REQUEST} characters"
ALLOWED_FILTER_LENGTH = f"must be at most {LONGEST_FILTER} characters"
ALLOWED_JSON = 'is not JSON such as {"gpus": 1, "partial": 0.5}; options are simpler: -n 1 -p 0.5'
LONGEST_SHOWN = 60  # characters of a wrong value


def parse_request_annotation(text: object) -> GpuRequest:
    """``-n 2 -p 0.5`` or ``{"gpus": 2, "partial": 0.5}``. Raises InvalidRequest that names the annotation."""
    if not isinstance(text, str):
        raise InvalidRequest(ANNOTATION_REQUEST, text, ALLOWED_TEXT)
    if len(text) > LONGEST_REQUEST:
        raise InvalidRequest(ANNOTATION_REQUEST, shortened(text), ALLOWED_LENGTH)
    try:
        if text.lstrip().startswith("{"):
            return GpuRequest.from_json(json.loads(text))
        return parse_request_text(text)
    except UsageError as error:
        problem = error.plainly if isinstance(error, WrongOption) else str(error)
        raise InvalidRequest(ANNOTATION_REQUEST, shortened(text), f"{problem}; {ALL_OPTIONS}") from None
    except InvalidRequest as error:
        raise InvalidRequest(ANNOTATION_REQUEST, shortened(text), _one_value(error)) from None
    except (ValueError, RecursionError):
        raise InvalidRequest(ANNOTATION_REQUEST, shortened(text), ALLOWED_JSON) from None


def shortened(value: str) -> str:
    """A wrong value as a message shows it."""
    return value if len(value) <= LONGEST_SHOWN else value[: LONGEST_SHOWN - 1] + "…"


def _one_value(error: InvalidRequest) -> str:
    """What is wrong with one value within the annotation, as a part of a sentence."""
    allowed = error.allowed
    option = error.spelled if error.spelled.startswith("-") else ""
    if allowed == ALLOWED_ONE_SIZE:
        return allowed
    if error.field == "partial":
        try:
            parse_share(error.value, option)
        except InvalidRequest as told:
            allowed = told.allowed
    elif error.field == "memory_mib":
        try:
            meant = str(parse_memory(error.value))
        except InvalidRequest:
            meant = ""  # nothing can be meant by it
        if meant and meant != str(error.value).strip():
            allowed += f"; write {option} {meant}".replace("  ", " ")
    return f'{error.spelled} "{shortened(shown_value(error.value))}" {allowed}'


def format_request_annotation(request: GpuRequest) -> str:
    """One line of options that `parse_request_annotation` reads."""
    return shlex.join(format_options(request))


def parse_filter_annotation(text: object) -> tuple[tuple[str, str], ...]:
    """``key=value`` items separated by blanks, as VMware's injector splits them.

    Raises InvalidRequest that names the annotation. The items are checked where they become a GpuRequest.
    """
    if not isinstance(text, str):
        raise InvalidRequest(ANNOTATION_FILTER, text, ALLOWED_FILTER)
    if len(text) > LONGEST_FILTER:
        raise InvalidRequest(ANNOTATION_FILTER, shortened(text), ALLOWED_FILTER_LENGTH)
    pairs = []
    for item in text.split():
        key, equals, value = item.partition("=")
        if not equals:
            raise InvalidRequest(ANNOTATION_FILTER, item, ALLOWED_FILTER)
        pairs.append((key, value))
    return tuple(pairs)


def format_filter_annotation(filters: tuple[tuple[str, str], ...]) -> str | None:
    """The opposite of `parse_filter_annotation`; None if a value has a blank, which it cannot say."""
    if any(" " in value for _, value in filters):
        return None
    return " ".join(f"{key}={value}" for key, value in filters)
