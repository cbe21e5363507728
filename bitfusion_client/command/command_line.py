"""The options of `bitfusion run` and `request_gpus`: parse and format, as lists and never as a shell string.

Grammar: options in any order, ``--flag value``, ``--flag=value`` or with one dash, up to the first word that
is no option or to ``--``. `-n -p -m --filter --server_list` are documented or were seen with the real client;
the long names, `-l` and `--timeout` are known from memory only.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request.decimals import plain_number
from bitfusion_client.request.durations import format_duration_short, parse_duration
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.request_rules import (
    ALLOWED_FILTER,
    ALLOWED_GPUS,
    ALLOWED_MEMORY,
    ALLOWED_ONE_SIZE,
    ALLOWED_SERVER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, MutableMapping, Sequence
    from typing import Any

ALL_LINES_VARIABLE = "BITFUSION_POOL_ALL_LINES"
"""Set by a program that reads the waiting lines and wants each change; people get one line a minute."""

_FIELD_OF_NAME = {
    "n": "gpus",
    "num_gpus": "gpus",
    "p": "partial",
    "partial": "partial",
    "m": "memory_mib",
    "gpu_memory": "memory_mib",
    "filter": "filters",
    "server_list": "servers",
    "l": "servers",
    "timeout": "timeout",
}
_REPEATABLE = ("filters", "servers")

ALL_OPTIONS = (
    "the options are -n GPUS, -p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, --timeout 30m."
)


class WrongOption(UsageError):
    """An option that there is not, or one without its value, in the words of the client.

    Attributes:
        plainly: The same for somebody who has written no command: ``--gpu is not an option``.
    """

    def __init__(self, problem: str, plainly: str = "") -> None:
        super().__init__(problem, ALL_OPTIONS)
        self.args = (problem, plainly)
        self.plainly = plainly or problem


class HelpWanted(WrongOption):
    """Somebody has asked what the options are: ``-h``, ``--help``."""


def parse_options(
    args: Sequence[str],
    *,
    base: GpuRequest | None = None,
    other: MutableMapping[str, str] | None = None,
    count_may_be_a_word: bool = False,
    units: bool = False,
) -> tuple[GpuRequest, list[str]]:
    """The request at the front of a command line, and the words after it.

    Args:
        args: Options and then the program, which is not yet split.
        base: A request whose values are kept where no option replaces them (``%bitfusion request``). Without
            it the number of GPUs is required, as in the client.
        other: Names of further options with a value (``{"f": ""}``); the values given are put into it.
        count_may_be_a_word: Whether the number of GPUs may stand without an option (``request_gpus 1``).
        units: Whether sizes are read as in the kernel's settings, ``-m 8Gi`` and with advice what was meant;
            otherwise as strictly as the client reads them.

    Raises:
        InvalidRequest: A value is wrong.
        UsageError: The options cannot be understood.
        HelpWanted: They ask for help; a UsageError, too.
    """
    given: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    parsers = _parsers_with_units() if units else _PARSERS

    def take(field: str, text: str, flag: str) -> None:
        parsed = parsers[field](text, flag)
        given[field] = (*given.get(field, ()), *parsed) if field in _REPEATABLE else parsed
        spelled[field] = flag

    known = {*_FIELD_OF_NAME, *(other or ())}
    position = 0
    while position < len(args) and args[position] != "--":
        word = args[position]
        if len(word) > 1 and word.startswith("-"):
            flag, name, value, position = _next_option(args, position, known)
            if name in _FIELD_OF_NAME:
                take(_FIELD_OF_NAME[name], value, flag)
            elif other is not None:
                other[name] = value
        elif count_may_be_a_word and "gpus" not in given and word.isascii() and word.isdigit():
            take("gpus", word, "num_gpus")
            position += 1
        else:
            break
    rest = list(args[position:])
    if base is None and "gpus" not in given:
        raise WrongOption("the number of GPUs is missing: -n", "the number of GPUs is missing, as in -n 1")
    if "partial" in given and "memory_mib" in given:
        raise InvalidRequest("memory_mib", given["memory_mib"], ALLOWED_ONE_SIZE, spelled["memory_mib"])
    return _request(base, given, spelled), rest[1:] if rest[:1] == ["--"] else rest


def _next_option(args: Sequence[str], position: int, known: Container[str]) -> tuple[str, str, str, int]:
    """The option at `position`: how it was written, its name, its value, and where the next word is."""
    flag, equals, value = args[position].partition("=")
    name = flag[2:] if flag.startswith("--") else flag[1:]
    if name in ("h", "help") and name not in known:
        raise HelpWanted(f"help was asked for: {flag}", f"{flag} cannot be used here")
    if name not in known:
        raise WrongOption(f"flag provided but not defined: {flag}", f"{flag} is not an option")
    if equals:
        return flag, name, value, position + 1
    if position + 1 == len(args):
        raise WrongOption(f"flag needs an argument: {flag}", f"{flag} needs a value after it")
    return flag, name, args[position + 1], position + 2


def _request(base: GpuRequest | None, given: dict[str, Any], spelled: dict[str, str]) -> GpuRequest:
    values: dict[str, Any] = {}
    if base is not None:
        values = {name: getattr(base, name) for name in GpuRequest.__match_args__}
        if "partial" in given or "memory_mib" in given:
            values["partial"] = values["memory_mib"] = None
    values.update(given)
    try:
        return GpuRequest(**values)
    except InvalidRequest as error:
        name = spelled.get(error.field, "")
        raise InvalidRequest(error.field, error.value, error.allowed, name) from None


def field_of(flag: str) -> str:
    """The field of GpuRequest that an option sets; the option itself if it sets none."""
    return _FIELD_OF_NAME.get(flag.lstrip("-"), flag)


def parse_request_text(text: str, base: GpuRequest | None = None) -> GpuRequest:
    """The request of one line of options, ``-n 2 -p 0.5``, with a shell's quotes. Nothing else may follow.

    Options that are not given keep the values of `base`. Raises InvalidRequest and UsageError.
    """
    request, rest = parse_options(split_words(text), base=base)
    if rest:
        raise UsageError(f"unexpected word after the options: {rest[0]}", ALL_OPTIONS)
    return request


def split_words(text: str) -> list[str]:
    """The words of a line, with a shell's quotes and nothing else of a shell. Raises UsageError."""
    if not any(letter in text for letter in " \t\r\n'\"\\"):
        return [text] if text else []

    import shlex  # brings re, 5 ms; only lines that somebody typed are split

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"cannot split {text!r} into words: {error}") from None


def parse_program(rest: Sequence[str]) -> list[str]:
    """The program after the options, with its arguments.

    A single word is split: ``bitfusion run -n 1 "cmd a b"`` is allowed. Raises UsageError if there is none.
    """
    program = split_words(rest[0]) if len(rest) == 1 else list(rest)
    if not program or not program[0]:
        raise UsageError("there is no program to run")
    return program


def _whole(field: str, text: str, flag: str, allowed: str) -> int:
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise InvalidRequest(field, text, allowed, flag)
    return int(digits)


def _parse_partial(text: str, flag: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        from bitfusion_client.request.shares import parse_share  # says what was meant

        return parse_share(text, flag)
    return value


def _parse_timeout(text: str, flag: str) -> float:
    try:
        return GpuRequest(timeout=parse_duration(text)).timeout or 0.0
    except InvalidRequest as error:
        raise InvalidRequest("timeout", text, error.allowed, flag) from None


def _parse_filter(text: str, flag: str) -> list[tuple[str, str]]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidRequest("filters", text, ALLOWED_FILTER, flag)
    return [(key, value)]


def _parse_servers(text: str, flag: str) -> list[str]:
    # the client's separator is ";", but nothing else can be meant by commas and blanks
    servers = text.replace(";", " ").replace(",", " ").split()
    if not servers:
        raise InvalidRequest("servers", text, ALLOWED_SERVER, flag)
    return servers


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "gpus": lambda text, flag: _whole("gpus", text, flag, ALLOWED_GPUS),
    "partial": _parse_partial,
    "memory_mib": lambda text, flag: _whole("memory_mib", text, flag, ALLOWED_MEMORY),
    "filters": _parse_filter,
    "servers": _parse_servers,
    "timeout": _parse_timeout,
}


def _parsers_with_units() -> dict[str, Callable[[str, str], Any]]:
    from bitfusion_client.request.quantities import parse_gpu_memory  # the client itself needs none of it

    return {**_PARSERS, "memory_mib": parse_gpu_memory}


def format_options(request: GpuRequest) -> list[str]:
    """The options of a request; `parse_options` gives the same request back."""
    options = ["-n", str(request.gpus)]
    if request.partial is not None:
        options += ["-p", plain_number(request.partial)]
    if request.memory_mib is not None:
        options += ["-m", str(request.memory_mib)]
    for key, value in request.filters:
        options += ["--filter", f"{key}={value}"]
    if request.servers:
        options += ["--server_list", ";".join(request.servers)]
    if request.timeout is not None:
        options += ["--timeout", format_duration_short(request.timeout)]
    return options


def run_command(client: str | Sequence[str], request: GpuRequest, program: Sequence[str]) -> list[str]:
    """The argument list that runs `program` under the client: ``[client, "run", …, "--", *program]``."""
    if not program or not program[0]:
        raise UsageError("there is no program to run")
    words = list(program)
    if len(words) == 1 and any(not (letter.isalnum() or letter in "/._-+") for letter in words[0]):
        # The client splits a single word at its blanks and quotes.
        words = ["/usr/bin/env", *words]
    start = [client] if isinstance(client, str) else list(client)
    return [*start, "run", *format_options(request), "--", *words]
