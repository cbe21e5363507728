"""Parses what `bitfusion run` prints, line by line, into the kinds of `client_lines`.

The kernel reads GPUs, queue position and errors from it. No text raises: a line of no known kind is
`Unknown`. The embedded pool's own lines (`Waiting`, and those of a pool that is out of reach) are also
formatted here.
"""

from __future__ import annotations

from bitfusion_client.command import client_lines as kinds
from bitfusion_client.command.client_lines import Line, Unknown
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Meaning: TypeAlias = tuple[Any, ...]

MOST_NAMED = 4  # holders, and likewise waiters, in one waiting line; the others are counted
NOTE = "Note: "
"""Begins what a person should know of the GPUs that were just given."""
_HELD_BY, _BEFORE, _WHY = "held by ", "before you ", "why: "

_POOL = "Pool "
_OUT_OF_REACH = " is out of reach: "
_ENDED_IN, _UNLESS_BACK = "; the program is ended in ", " s unless it comes back"
_BACK_AFTER = " is back after "
_LOST_POD = "GPU pod lost: "
_LOST_POOL, _LOST_FOR = "pool ", " was out of reach for "
_LOST = " s, so the program was ended: its GPUs may be given to others"


def parse_line(text: str) -> Line:
    """One line of the client's output, with or without its line end, as one of its kinds. Never raises."""
    text = text.rstrip("\r\n")
    level, time, message = split_log_prefix(text)
    start = (text, level, time) if level else (text,)
    try:
        for word, meaning in (_OF_LOG if level else _PLAIN).items():
            if message.startswith(word):
                kind, *values = meaning(message[len(word) :])
                line: Line = kind(*start, *values)
                return line
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
    queue_position: int | None,
    queue_length: int | None,
    held_by: Sequence[str] = (),
    holders: int = 0,
    before: Sequence[str] = (),
    waiters: int = 0,
    why: str = "",
) -> str:
    """The message of a `Waiting` line, without level and time.

    It names the first four of `held_by` and of `before`, of which there are `holders` and `waiters` in all.
    Parts begin with words of their own and are separated by ``; ``, which no name can contain.
    """
    parts = [f"position {queue_position} of {queue_length}"] if queue_position else []
    for word, names, count in ((_HELD_BY, held_by, holders), (_BEFORE, before, waiters)):
        named = [_one_line(name) for name in names[:MOST_NAMED]]
        more = max(count, len(names)) - len(named)
        parts += [word + name for name in (*named, *([f"{more} more"] if more else ()))]
    if why:
        parts.append(_WHY + _one_line(why))
    return "Waiting for GPUs: " + "; ".join(parts)


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


def _query(rest: str) -> Meaning:
    for words in (" to claim client id: ", " to claim host id: "):
        server, found, client_id = rest.partition(words)
        if found:
            return kinds.ClaimingClient, server, client_id
    if rest.endswith(" gpu availability"):
        return kinds.QueryServer, rest[: -len(" gpu availability")]
    if rest == "health status":
        return kinds.QueryServer, ""
    raise ValueError


def _contact_failed(rest: str) -> Meaning:
    server, _, reason = rest.partition(" ")
    _, found, words = reason.partition(" id: ")
    return kinds.ContactFailed, server, words if found else reason.partition(": ")[2] or reason


def _requesting(rest: str) -> Meaning:
    ids, rest = _between(rest, "[", "] with ")
    memory, rest = _between(rest, "", " MiB of memory from server ")
    index, version = _between(rest, "", ", with version ")
    gpu_ids = tuple(map(_number, ids.split()))
    return kinds.Requesting, gpu_ids, _number(memory), _number(index), version.rstrip(".")


def _locked(rest: str) -> Meaning:
    gpus, rest = _between(rest, "", " GPUs with partial memory ")
    partial, rest = _between(rest, "", ", configuration saved to '")
    return kinds.Locked, _number(gpus), float(partial), rest.rstrip("'")


def _running(rest: str) -> Meaning:
    # the command may contain quotes itself: the last ones count
    command, found, rest = rest.rpartition("' on ")
    gpus, words, _ = rest.partition(" GPUs")
    if not found or not words or not command.startswith("'"):
        raise ValueError
    return kinds.RunningCommand, command[1:], _number(gpus)


def _waiting(rest: str) -> Meaning:
    parts = rest.split("; ")
    known: tuple[int | None, int | None] = (None, None)
    if parts[0].startswith(("position ", "place ")):  # as clients up to 0.1.0 called it
        position, length = parts.pop(0).partition(" ")[2].split(" of ")
        known = _number(position), _number(length)
    elif not parts[0].startswith((_HELD_BY, _BEFORE, _WHY)):
        raise ValueError

    def parts_of(word: str) -> tuple[str, ...]:
        return tuple(part[len(word) :] for part in parts if part.startswith(word))

    named = parts_of(_HELD_BY), parts_of(_BEFORE), "".join(parts_of(_WHY)[:1])
    return kinds.Waiting, *known, *named


def _pool(rest: str) -> Meaning:
    pool, back, seconds = rest.partition(_BACK_AFTER)
    if back and " " not in pool:
        return kinds.BackInReach, pool, _number(_between(seconds, "", " s")[0])
    pool, reason = _between(rest, "", _OUT_OF_REACH)
    if " " in pool:
        raise ValueError
    reason, ends, seconds = reason.partition(_ENDED_IN)
    return kinds.OutOfReach, pool, reason, _number(_between(seconds, "", _UNLESS_BACK)[0]) if ends else None


def _released(rest: str) -> Meaning:
    servers, _, rest = rest.partition(" servers")
    return kinds.Released, _number(servers), rest.partition("'")[2].rstrip("'")


def _server_line(message: str) -> Meaning:
    host, dispatcher_port, uuid, srs_port, version = message.split(" ")
    return kinds.ServerLine, host, _number(dispatcher_port), uuid, _number(srs_port), version


def _header(rest: str) -> Meaning:
    if rest.strip():
        raise ValueError
    return (kinds.RequestedResources,)


def _fatal(rest: str) -> Meaning:
    if rest.startswith(_LOST_POOL) and rest.endswith(_LOST):
        pool, found, seconds = rest[len(_LOST_POOL) : -len(_LOST)].partition(_LOST_FOR)
        if found and seconds.isascii() and seconds.isdigit():
            return kinds.PoolLost, rest, pool, _number(seconds)
    if rest.startswith(_LOST_POD):
        return kinds.PodEnded, rest
    return kinds.FatalError, rest


# Beginnings of lines, and what reads the rest: its kind, and the values that this has of its own.
_OF_LOG: dict[str, Callable[[str], Meaning]] = {
    "Query server ": _query,
    "Error contacting server ": _contact_failed,
    "Choosing GPUs from server list ": lambda rest: (
        kinds.ChoosingServers,
        tuple(_between(rest, "[", "]")[0].split()),
    ),
    "Requesting GPUs ": _requesting,
    "Locked ": _locked,
    "Running client command ": _running,
    "Command started, launching telemetry process: ": lambda rest: (
        kinds.TelemetryStarted,
        *rest.partition(" | ")[::2],
    ),
    "Waiting for GPUs: ": _waiting,
    NOTE: lambda rest: (kinds.Note, rest),
    _POOL: _pool,
    "Releasing GPUs from config file ": lambda rest: (kinds.Releasing, _between(rest, "'", "'...")[0]),
    "Released GPUs on ": _released,
    "": _server_line,
}
_PLAIN: dict[str, Callable[[str], Meaning]] = {
    "Error: ": _fatal,
    "Token expired at: ": lambda rest: (kinds.TokenExpiredLine, rest),
    "Requested resources:": _header,
    "Server List: ": lambda rest: (kinds.ServerList, tuple(rest.replace(";", " ").replace(",", " ").split())),
    "Client idle timeout: ": lambda rest: (kinds.IdleTimeout, _number(rest.removesuffix(" min"))),
}
