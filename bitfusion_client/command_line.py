"""The options of `bitfusion run` and `request_gpus`, read and written; always lists, never a shell string.

Grammar: options in any order, ``--flag value``, ``--flag=value`` or with one dash, up to the first word that
is no option or to ``--``. `-n -p -m --filter --server_list` are documented or seen with the real client; the
long names, `-l` and `--timeout` are remembered only.
"""

from __future__ import annotations

from bitfusion_client.decimals import plain_number
from bitfusion_client.durations import format_duration_short, parse_duration
from bitfusion_client.errors import InvalidRequest, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request import GpuRequest
from bitfusion_client.request_rules import (
    ALLOWED_FILTER,
    ALLOWED_GPUS,
    ALLOWED_MEMORY,
    ALLOWED_ONE_SIZE,
    ALLOWED_PARTIAL,
    ALLOWED_SERVER,
)

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

_NAMES = {
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


def parse_options(
    args: Sequence[str],
    *,
    base: GpuRequest | None = None,
    other: MutableMapping[str, str] | None = None,
    count_may_be_a_word: bool = False,
) -> tuple[GpuRequest, list[str]]:
    """The request at the front of `args`, and the words after it (the program, not yet split).

    Without `base` the number of GPUs is required, as in the client. With `base` (``%bitfusion request``)
    options not given keep its values. `other` names further options with a value (``{"f": ""}``); those given
    are put into it. `count_may_be_a_word` reads ``request_gpus 1``. Raises InvalidRequest, UsageError.
    """
    given: dict[str, object] = {}
    filters: list[tuple[str, str]] = []
    servers: list[str] = []
    spelled: dict[str, str] = {}
    position = 0
    while position < len(args):
        word = args[position]
        if word == "--":
            position += 1
            break
        if len(word) < 2 or not word.startswith("-"):
            if not (count_may_be_a_word and "gpus" not in given and word.isascii() and word.isdigit()):
                break
            given["gpus"], spelled["gpus"] = _parse_whole("gpus", word, "num_gpus", ALLOWED_GPUS), "num_gpus"
            position += 1
            continue
        position += 1
        flag, equals, value = word.partition("=")
        name = flag[1:] if not flag.startswith("--") else flag[2:]
        field = _NAMES.get(name)
        if field is None and (other is None or name not in other):
            raise UsageError(f"flag provided but not defined: {flag}", _NEXT_USAGE)
        if not equals:
            if position == len(args):
                raise UsageError(f"flag needs an argument: {flag}", _NEXT_USAGE)
            value = args[position]
            position += 1
        if field is None:
            assert other is not None
            other[name] = value
            continue
        spelled[field] = flag
        if field == "gpus":
            given[field] = _parse_whole(field, value, flag, ALLOWED_GPUS)
        elif field == "partial":
            given[field] = _parse_partial(value, flag)
        elif field == "memory_mib":
            given[field] = _parse_whole(field, value, flag, ALLOWED_MEMORY)
        elif field == "timeout":
            given[field] = _parse_timeout(value, flag)
        elif field == "filters":
            filters.append(_parse_filter(value, flag))
        else:
            servers += parse_servers(value, flag)
    rest = list(args[position:])
    if base is None and "gpus" not in given:
        raise UsageError("the number of GPUs is missing: -n", _NEXT_USAGE)
    if "partial" in given and "memory_mib" in given:
        raise InvalidRequest("memory_mib", given["memory_mib"], ALLOWED_ONE_SIZE, spelled["memory_mib"])
    if filters:
        given["filters"] = tuple(filters)
    if servers:
        given["servers"] = tuple(servers)
    return _request(base, given, spelled), rest


_NEXT_USAGE = (
    "the options are -n GPUS, -p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, --timeout 30m."
)


def _request(base: GpuRequest | None, given: dict[str, object], spelled: dict[str, str]) -> GpuRequest:
    values: dict[str, object] = {}
    if base is not None:
        values = {name: getattr(base, name) for name in GpuRequest.__match_args__}
        if "partial" in given or "memory_mib" in given:
            values["partial"] = values["memory_mib"] = None
    values.update(given)
    try:
        return GpuRequest(**values)  # type: ignore[arg-type]  # the types are what the parsers above return
    except InvalidRequest as error:
        name = spelled.get(error.field, "")
        raise InvalidRequest(error.field, error.value, error.allowed, name) from None


def field_of(flag: str) -> str:
    """The field of GpuRequest an option sets; the option itself if it sets none."""
    return _NAMES.get(flag.lstrip("-"), flag)


def parse_request_text(text: str, base: GpuRequest | None = None) -> GpuRequest:
    """A request written as one line of options: ``-n 2 -p 0.5``. Quotes as in a shell; nothing may follow."""
    request, rest = parse_options(split_words(text), base=base)
    if rest:
        raise UsageError(f"unexpected word after the options: {rest[0]}", _NEXT_USAGE)
    return request


def split_words(text: str) -> list[str]:
    """Words of a line, with a shell's quoting but nothing else of a shell. Raises UsageError."""
    import shlex  # brings `re`: only when somebody typed a line

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"cannot split {text!r} into words: {error}") from None


def split_program(rest: Sequence[str]) -> list[str]:
    """The program as a list: ``bitfusion run -n 1 "cmd a b"`` gives it as one word with a shell's quoting."""
    return split_words(rest[0]) if len(rest) == 1 else list(rest)


def _parse_whole(field: str, text: str, flag: str, allowed: str) -> int:
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
        raise InvalidRequest("partial", text, ALLOWED_PARTIAL, flag)
    return value


def _parse_timeout(text: str, flag: str) -> float:
    try:
        return GpuRequest(timeout=parse_duration(text)).timeout or 0.0
    except InvalidRequest as error:
        raise InvalidRequest("timeout", text, error.allowed, flag) from None


def _parse_filter(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidRequest("filters", text, ALLOWED_FILTER, flag)
    return key, value


def parse_servers(text: str, spelled: str = "--server_list") -> list[str]:
    """The addresses of ``a:56001;b:56001``; commas and blanks separate as well. Raises InvalidRequest."""
    servers = text.replace(";", " ").replace(",", " ").split()
    if not servers:
        raise InvalidRequest("servers", text, ALLOWED_SERVER, spelled)
    return servers


def format_options(request: GpuRequest) -> list[str]:
    """The options of `request`; `parse_options` gives the same request back."""
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
    """Argument list that runs `program` under the client: ``[client, "run", …, "--", *program]``."""
    if not program or not program[0]:
        raise UsageError("there is no program to run")
    words = list(program)
    if len(words) == 1 and any(not (letter.isalnum() or letter in "/._-+") for letter in words[0]):
        # a single word would be split at its blanks and quotes by the client
        words = ["/usr/bin/env", *words]
    front = [client] if isinstance(client, str) else list(client)
    return [*front, "run", *format_options(request), "--", *words]
