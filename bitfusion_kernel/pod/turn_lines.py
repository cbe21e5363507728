"""The lines of a kernel that waits for its turn, before `bitfusion run` begins: formatted and parsed. Pure.

They come on the wrapper's output, as the client's own do, and stand in `%bitfusion log` with them.
"""

from __future__ import annotations

import time

from bitfusion_client.command.client_lines import Waiting
from bitfusion_client.command.client_output import format_waiting, parse_line, split_log_prefix
from bitfusion_client.command.command_line import format_options, parse_request_text
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.durations import format_duration_short
from bitfusion_client.request.gpu_request import GpuRequest

if TYPE_CHECKING:
    from bitfusion_kernel.pod.turns import Turn

_CLIENTS_WORDS = "Waiting for GPUs: "
_WAITING = "Waiting for the budget of this pod: "
_TAKING = "Taking of the budget of this pod: "
_NOT_COUNTED = "The budget of this pod is not counted: "


@dataclass(frozen=True, slots=True)
class Taken:
    """The turn has come, and this is asked of the pool."""

    request: GpuRequest


@dataclass(frozen=True, slots=True)
class NotCounted:
    """There is no account: other kernels of the pod are not waited for."""

    problem: str


def format_turn(turn: Turn, now: float) -> str:
    """The line of somebody who waits; `now` in seconds since the epoch."""
    why = ""
    if turn.left is not None:
        size = GpuRequest(turn.left.gpus, turn.left.partial, turn.left.memory_mib)
        options = " ".join(format_options(size))
        why = f"only {size.describe()} is left, and `%bitfusion request {options}` would ask for that"
    words = format_waiting(
        turn.position,
        turn.length,
        [entry.describe(now) for entry in turn.holders],
        before=[entry.describe(now) for entry in turn.before],
        why=why,
    )
    return _log_line(_WAITING + words.removeprefix(_CLIENTS_WORDS), now)


def format_taken(request: GpuRequest, now: float) -> str:
    """The line before `bitfusion run`."""
    import shlex

    return _log_line(_TAKING + shlex.join(format_options(request)), now)


def format_timed_out(seconds: float) -> str:
    """The last line of a wait that was too long, in the words of the client's own."""
    return f"Error: timed out after {format_duration_short(seconds)} waiting for the budget of this pod"


def format_not_counted(problem: str, now: float) -> str:
    """The line of a kernel that can't find the others."""
    return _log_line(_NOT_COUNTED + " ".join(problem.split()), now, "WARN")


def parse_turn_line(text: str) -> Waiting | Taken | NotCounted | None:
    """One of these lines; None for any other."""
    level, at, message = split_log_prefix(text)
    if message.startswith(_WAITING):
        line = parse_line(f"[{level}] {at} {_CLIENTS_WORDS}{message[len(_WAITING) :]}")
        return line if isinstance(line, Waiting) else None
    if message.startswith(_NOT_COUNTED):
        return NotCounted(message[len(_NOT_COUNTED) :])
    if message.startswith(_TAKING):
        try:
            return Taken(parse_request_text(message[len(_TAKING) :]))
        except BitfusionError:
            return None
    return None


def _log_line(message: str, now: float, level: str = "INFO") -> str:
    return f"[{level}] {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now))} {message}"
