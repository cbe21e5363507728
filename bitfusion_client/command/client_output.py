"""Parses what `bitfusion run` prints, line by line, into the kinds of `client_lines`.

The kernel reads GPUs, queue position and errors from it. No text raises: a line of no known kind is
`Unknown`. The embedded pool's own lines (`Waiting`, and those of a pool that is out of reach) are also
formatted here.
"""

from __future__ import annotations

from bitfusion_client.command.client_lines import (
    BackInReach,
    ChoosingServers,
    ClaimingClient,
    ContactFailed,
    FatalError,
    IdleTimeout,
    Line,
    Locked,
    OutOfReach,
    PoolLost,
    QueryServer,
    Released,
    Releasing,
    RequestedResources,
    Requesting,
    RunningCommand,
    ServerLine,
    ServerList,
    TelemetryStarted,
    TokenExpiredLine,
    Unknown,
    Waiting,
)
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_NAMED = 4  # holders, and likewise waiters, in one waiting line; the others are counted
_HELD_BY, _BEFORE, _WHY = "held by ", "before you ", "why: "

_POOL = "Pool "
_OUT_OF_REACH = " is out of reach: "
_ENDED_IN, _UNLESS_BACK = "; the program is ended in ", " s unless it comes back"
_BACK_AFTER = " is back after "
_LOST_POOL, _LOST_FOR = "pool ", " was out of reach for "
_LOST = " s, so the program was ended: its GPUs may be given to others"


def parse_line(text: str) -> Line:
    """One line of the client's output, with or without its line end, as one of its kinds. Never raises."""
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
    """``[INFO] 2021-09-03T00:39:22Z message`` as level, time, message; ("", "", text) for any other line."""
    if not text.startswith("["):
        return "", "", text
    level, closed, rest = text[1:].partition("] ")
    time, _, message = rest.partition(" ")
    if not closed or not (level.isascii() and level.isalpha() and level.isupper()):
        return "", "", text
    if len(time) < 20 or not time.endswith("Z") or time[4] + time[7] + time[10] + time[13] != "--T:":
        return "", "", text
    return level, time, message


def format_waiting(
    queue_position: int,
    queue_length: int,
    held_by: Sequence[str] = (),
    holders: int = 0,
    before: Sequence[str] = (),
    waiters: int = 0,
    why: str = "",
) -> str:
    """The message of the embedded pool's `Waiting` line, without level and time.

    It names the first four of `held_by` and of `before`, of which there are `holders` and `waiters` in all.
    Parts begin with words of their own and are separated by ``; ``, which no name can contain.
    """
    parts = [f"Waiting for GPUs: place {queue_position} of {queue_length}"]
    for word, names, count in ((_HELD_BY, held_by, holders), (_BEFORE, before, waiters)):
        named = [_one_line(name) for name in names[:MOST_NAMED]]
        more = max(count, len(names)) - len(named)
        parts += [word + name for name in (*named, *([f"{more} more"] if more else ()))]
    if why:
        parts.append(_WHY + _one_line(why))
    return "; ".join(parts)


def format_out_of_reach(pool: str, reason: str, ends_in_s: int | None = None) -> str:
    """The message of an `OutOfReach` line, without level (WARN) and time; `pool` as ``host:port``."""
    ends = "" if ends_in_s is None else f"{_ENDED_IN}{ends_in_s}{_UNLESS_BACK}"
    return f"{_POOL}{pool}{_OUT_OF_REACH}{_one_line(reason)}{ends}"


def format_back_in_reach(pool: str, seconds: int) -> str:
    """The message of a `BackInReach` line, without level (INFO) and time."""
    return f"{_POOL}{pool}{_BACK_AFTER}{seconds} s"


def format_pool_lost(pool: str, seconds: int) -> str:
    """The text of a `PoolLost` line after ``Error: ``."""
    return f"{_LOST_POOL}{pool}{_LOST_FOR}{seconds}{_LOST}"


def _one_line(text: str) -> str:
    return " ".join(text.replace(";", ",").split())


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
    position, rest = _between(rest, "place ", " of ")
    length, *parts = rest.split("; ")

    def parts_of(word: str) -> tuple[str, ...]:
        return tuple(part[len(word) :] for part in parts if part.startswith(word))

    why = "".join(parts_of(_WHY)[:1])
    return Waiting(
        text, level, time, _number(position), _number(length), parts_of(_HELD_BY), parts_of(_BEFORE), why
    )


def _pool(rest: str, text: str, level: str, time: str) -> Line:
    pool, back, seconds = rest.partition(_BACK_AFTER)
    if back and " " not in pool:
        return BackInReach(text, level, time, pool, _number(_between(seconds, "", " s")[0]))
    pool, reason = _between(rest, "", _OUT_OF_REACH)
    if " " in pool:
        raise ValueError
    reason, ends, seconds = reason.partition(_ENDED_IN)
    return OutOfReach(
        text, level, time, pool, reason, _number(_between(seconds, "", _UNLESS_BACK)[0]) if ends else None
    )


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


def _fatal(rest: str, text: str) -> Line:
    if rest.startswith(_LOST_POOL) and rest.endswith(_LOST):
        pool, found, seconds = rest[len(_LOST_POOL) : -len(_LOST)].partition(_LOST_FOR)
        if found and seconds.isascii() and seconds.isdigit():
            return PoolLost(text, rest, pool, _number(seconds))
    return FatalError(text, rest)


_LOG_PARSERS: tuple[tuple[str, Callable[[str, str, str, str], Line]], ...] = (
    ("Query server ", _query),
    ("Error contacting server ", _contact_failed),
    ("Choosing GPUs from server list ", _choosing),
    ("Requesting GPUs ", _requesting),
    ("Locked ", _locked),
    ("Running client command ", _running),
    ("Command started, launching telemetry process: ", _telemetry),
    ("Waiting for GPUs: ", _waiting),
    (_POOL, _pool),
    ("Releasing GPUs from config file ", _releasing),
    ("Released GPUs on ", _released),
)

_PLAIN_PARSERS: tuple[tuple[str, Callable[[str, str], Line]], ...] = (
    ("Error: ", _fatal),
    ("Token expired at: ", lambda rest, text: TokenExpiredLine(text, rest)),
    ("Requested resources:", _header),
    ("Server List: ", _server_list),
    ("Client idle timeout: ", _idle_timeout),
)
