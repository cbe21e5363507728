"""What the client prints while it runs something, line by line.

Read by the kernel's front (to show place, GPUs, errors) and by tests. Nothing here raises on any text: a
line nobody knows is `Unknown`. Words as logged by clients 2.5.0, 3.0.0 and 4.0.0; `Waiting` is a stand-in's
own.
"""

from __future__ import annotations

from bitfusion_client.durations import plain_number
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bitfusion_client.client_reports import HealthReport, ServerStatus
    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.request import GpuRequest

MOST_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `text` is all of it without the line end."""

    text: str


@dataclass(frozen=True, slots=True)
class LogLine(Line):
    """`[LEVEL] time message`. Level and time are "" where the line had no such prefix."""

    level: str
    time: str


@dataclass(frozen=True, slots=True)
class Unknown(LogLine):
    """A line of none of the known kinds; log lines keep their level and time."""


@dataclass(frozen=True, slots=True)
class ClaimingClient(LogLine):
    """The first contact of 4.0: the client tells a server who it is."""

    server: str
    client_id: str


@dataclass(frozen=True, slots=True)
class QueryServer(LogLine):
    """`Query server … gpu availability`, or the health query (server "" there)."""

    server: str


@dataclass(frozen=True, slots=True)
class ContactFailed(LogLine):
    """A server did not answer; the client goes on with the next one."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChoosingServers(LogLine):
    """The servers it chooses GPUs from."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requesting(LogLine):
    """The GPUs it asks a server for; `server_index` counts in the server list, memory is per GPU."""

    gpu_ids: tuple[int, ...]
    memory_mib: int
    server_index: int
    version: str


@dataclass(frozen=True, slots=True)
class RequestedResources(Line):
    """Header of the two lines after it; the client prints them without level and time."""


@dataclass(frozen=True, slots=True)
class ServerList(Line):
    """`Server List:` of the allocation."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdleTimeout(Line):
    """`Client idle timeout: 0 min`; 0 means none."""

    minutes: int


@dataclass(frozen=True, slots=True)
class Locked(LogLine):
    """The GPUs are ours. `partial` is the share of each, `lock_file` names the allocation."""

    gpus: int
    partial: float
    lock_file: str


@dataclass(frozen=True, slots=True)
class RunningCommand(LogLine):
    """The program starts. `command` is joined by blanks, its quoting is lost."""

    command: str
    gpus: int


@dataclass(frozen=True, slots=True)
class ServerLine(LogLine):
    """The server that serves it: `ip dispatcherport uuid srsport version`."""

    host: str
    dispatcher_port: int
    uuid: str
    srs_port: int
    version: str


@dataclass(frozen=True, slots=True)
class TelemetryStarted(LogLine):
    """4.0 starts a telemetry process beside the program."""

    client_id: str
    server: str


@dataclass(frozen=True, slots=True)
class Waiting(LogLine):
    """Place in the queue and who is in the way: holders first, then earlier waiters (embedded pool only)."""

    place: int
    of: int
    ahead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Releasing(LogLine):
    """The program has ended, the GPUs are being given back."""

    lock_file: str


@dataclass(frozen=True, slots=True)
class Released(LogLine):
    """The GPUs are given back."""

    servers: int
    lock_file: str


@dataclass(frozen=True, slots=True)
class FatalError(Line):
    """`Error: …`: the client's last word. `problem` is the text after it."""

    problem: str


@dataclass(frozen=True, slots=True)
class TokenExpiredLine(Line):
    """`Token expired at: …`; `expiry` is as the client wrote it."""

    expiry: str


def parse_line(text: str) -> Line:
    """The meaning of one line of the client's output; never raises. One line end is dropped."""
    text = text.rstrip("\r\n")
    level, time, message = split_log_prefix(text)
    try:
        if level:
            for word, parse in _LOG_PARSERS:
                if message.startswith(word):
                    return parse(message[len(word) :], text, level, time)
            return _server_line(message, text, level, time)
        for word, parse_plain in _PLAIN_PARSERS:
            if text.startswith(word):
                return parse_plain(text[len(word) :], text)
    except (ValueError, IndexError):  # a known beginning with an unknown end
        pass
    return Unknown(text, level, time)


def split_log_prefix(text: str) -> tuple[str, str, str]:
    """`[INFO] 2021-09-03T00:39:22Z message` as level, time, message; ("", "", text) for any other line."""
    if not text.startswith("["):
        return "", "", text
    level, closed, rest = text[1:].partition("] ")
    time, _, message = rest.partition(" ")
    if not closed or not (level.isascii() and level.isalpha() and level.isupper()):
        return "", "", text
    if len(time) < 20 or not time.endswith("Z") or time[4] + time[7] + time[10] + time[13] != "--T:":
        return "", "", text
    return level, time, message


def parse_list_gpus(text: str) -> list[ServerStatus]:
    """The servers and GPUs of `list_gpus`; see `client_reports`."""
    from bitfusion_client import client_reports

    return client_reports.parse_list_gpus(text)


def parse_health(text: str) -> HealthReport:
    """The report of `health`; see `client_reports`."""
    from bitfusion_client import client_reports

    return client_reports.parse_health(text)


def format_waiting(place: int, of: int, ahead: Iterable[str] = ()) -> str:
    """The message of the embedded pool's waiting line, without level and time; names the first five."""
    names = [" ".join(who.replace(";", ",").split()) for who in ahead]
    if len(names) > MOST_AHEAD:
        names[MOST_AHEAD:] = [f"and {len(names) - MOST_AHEAD} more"]
    shown = f"Waiting for GPUs: place {place} of {of}"
    return f"{shown}, ahead: {'; '.join(names)}" if names else shown


def format_locked(gpus: int, partial: float, lock_file: str) -> str:
    """The message of the `Locked` line, the share as Go prints it (`1`, `0.5`)."""
    share = plain_number(partial)
    return f"Locked {gpus} GPUs with partial memory {share}, configuration saved to '{lock_file}'"


def error_from_output(
    lines: Sequence[str], exit_status: int | None, request: GpuRequest | None = None
) -> BitfusionError:
    """The error the client's last words mean; see `last_words`, which is read only when something failed."""
    from bitfusion_client import last_words

    return last_words.error_from_output(lines, exit_status, request)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ValueError
    return int(text)


def _between(text: str, start: str, end: str) -> tuple[str, str]:
    """The text between `start`, which must come first, and `end`; and what follows it."""
    if not text.startswith(start):
        raise ValueError
    inside, found, rest = text[len(start) :].partition(end)
    if not found:
        raise ValueError
    return inside, rest


def _query(rest: str, text: str, level: str, time: str) -> Line:
    for words in (" to claim client id: ", " to claim host id: "):
        server, found, client_id = rest.partition(words)
        if found:
            return ClaimingClient(text, level, time, server, client_id)
    if rest.endswith(" gpu availability"):
        return QueryServer(text, level, time, rest[: -len(" gpu availability")])
    if rest == "health status":
        return QueryServer(text, level, time, "")
    raise ValueError


def _contact_failed(rest: str, text: str, level: str, time: str) -> Line:
    server, _, reason = rest.partition(" ")
    _, found, words = reason.partition(" id: ")
    return ContactFailed(text, level, time, server, words if found else reason.partition(": ")[2] or reason)


def _choosing(rest: str, text: str, level: str, time: str) -> Line:
    servers, _ = _between(rest, "[", "]")
    return ChoosingServers(text, level, time, tuple(servers.split()))


def _requesting(rest: str, text: str, level: str, time: str) -> Line:
    ids, rest = _between(rest, "[", "] with ")
    memory, rest = _between(rest, "", " MiB of memory from server ")
    index, found, version = rest.partition(", with version ")
    if not found:
        raise ValueError
    gpu_ids = tuple(map(_number, ids.split()))
    return Requesting(text, level, time, gpu_ids, _number(memory), _number(index), version.rstrip("."))


def _locked(rest: str, text: str, level: str, time: str) -> Line:
    gpus, rest = _between(rest, "", " GPUs with partial memory ")
    partial, rest = _between(rest, "", ", configuration saved to '")
    return Locked(text, level, time, _number(gpus), float(partial), rest.rstrip("'"))


def _running(rest: str, text: str, level: str, time: str) -> Line:
    # the command may contain quotes itself: the last ones count
    command, found, rest = rest.rpartition("' on ")
    gpus, words, _ = rest.partition(" GPUs")
    if not found or not words or not command.startswith("'"):
        raise ValueError
    return RunningCommand(text, level, time, command[1:], _number(gpus))


def _telemetry(rest: str, text: str, level: str, time: str) -> Line:
    client_id, _, server = rest.partition(" | ")
    return TelemetryStarted(text, level, time, client_id, server)


def _waiting(rest: str, text: str, level: str, time: str) -> Line:
    place, rest = _between(rest, "place ", " of ")
    of, _, ahead = rest.partition(", ahead: ")
    names = tuple(name.strip() for name in ahead.split(";") if name.strip())
    return Waiting(text, level, time, _number(place), _number(of), names)


def _releasing(rest: str, text: str, level: str, time: str) -> Line:
    lock_file, _ = _between(rest, "'", "'...")
    return Releasing(text, level, time, lock_file)


def _released(rest: str, text: str, level: str, time: str) -> Line:
    servers, _, rest = rest.partition(" servers")
    _, _, lock_file = rest.partition("'")
    return Released(text, level, time, _number(servers), lock_file.rstrip("'"))


def _server_line(message: str, text: str, level: str, time: str) -> Line:
    host, dispatcher_port, uuid, srs_port, version = message.split(" ")
    return ServerLine(text, level, time, host, _number(dispatcher_port), uuid, _number(srs_port), version)


def _server_list(rest: str, text: str) -> Line:
    return ServerList(text, tuple(rest.replace(";", " ").replace(",", " ").split()))


def _idle_timeout(rest: str, text: str) -> Line:
    return IdleTimeout(text, _number(rest.removesuffix(" min")))


def _header(rest: str, text: str) -> Line:
    if rest.strip():
        raise ValueError
    return RequestedResources(text)


_LOG_PARSERS: tuple[tuple[str, Callable[[str, str, str, str], Line]], ...] = (
    ("Query server ", _query),
    ("Error contacting server ", _contact_failed),
    ("Choosing GPUs from server list ", _choosing),
    ("Requesting GPUs ", _requesting),
    ("Locked ", _locked),
    ("Running client command ", _running),
    ("Command started, launching telemetry process: ", _telemetry),
    ("Waiting for GPUs: ", _waiting),
    ("Releasing GPUs from config file ", _releasing),
    ("Released GPUs on ", _released),
)

_PLAIN_PARSERS: tuple[tuple[str, Callable[[str, str], Line]], ...] = (
    ("Error: ", lambda rest, text: FatalError(text, rest)),
    ("Token expired at: ", lambda rest, text: TokenExpiredLine(text, rest)),
    ("Requested resources:", _header),
    ("Server List: ", _server_list),
    ("Client idle timeout: ", _idle_timeout),
)
