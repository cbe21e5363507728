"""Which error the client's last words mean."""

from __future__ import annotations

from bitfusion_client import errors
from bitfusion_client.client_output import (
    ContactFailed,
    FatalError,
    Line,
    TokenExpiredLine,
    parse_line,
    split_log_prefix,
)
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_client.request import GpuRequest

KEPT_WORDS = 3  # lines of an unknown failure that are shown

# Documented words and the embedded pool's; those of NoGpusAvailable are guesses too: what a real client says
# when the pool is full is not known.
_MEANINGS: tuple[tuple[type[errors.BitfusionError], tuple[str, ...]], ...] = (
    (errors.TokenExpired, ("token expired", "token has expired")),
    (errors.NeverSatisfiable, ("no server can satisfy",)),
    (errors.WaitTimedOut, ("timed out after", "timed out waiting")),
    (errors.PoolUnreadable, ("pool ledger", "pool configuration")),
    (
        errors.ServersUnreachable,
        (
            "none of the servers responded",
            "no servers",
            "context deadline exceeded",
            "i/o timeout",
            "connection refused",
            "no route to host",
            "no such host",
        ),
    ),
    (
        errors.NoGpusAvailable,
        (
            "not enough gpus",
            "no gpus available",
            "insufficient gpu",
            "unable to allocate",
            "no available gpu",
        ),
    ),
)


def error_from_output(
    lines: Sequence[str], exit_status: int | None, request: GpuRequest | None = None
) -> errors.BitfusionError:
    """The error that `lines` mean: all or the last ones of a client that did not come to run its program.

    `exit_status` as the shell counts (128 + signal), None if unknown. What fits no class is ClientFailed with
    the last words. Never raises.
    """
    parsed = [parse_line(line) for line in lines]
    for line in parsed:
        if isinstance(line, TokenExpiredLine):
            return errors.TokenExpired(request, line.text)
    for line in reversed(parsed):
        if isinstance(line, FatalError):
            return _from_problem(line.problem, parsed, exit_status, request)
    messages = [split_log_prefix(line.text)[2].strip() for line in parsed]
    words = [message for message in messages if message][-KEPT_WORDS:]
    ending = exit_words(exit_status)
    answered = " | ".join(words)
    answered = f"{answered} ({ending})" if answered else f"it said nothing and {ending}"
    return errors.ClientFailed(request, answered, exit_status=exit_status)


def _from_problem(
    problem: str, parsed: list[Line], exit_status: int | None, request: GpuRequest | None
) -> errors.BitfusionError:
    small = problem.lower()
    for kind, words in _MEANINGS:
        if any(word in small for word in words):
            if kind is errors.ServersUnreachable:
                failed = [line for line in parsed if isinstance(line, ContactFailed)]
                if failed:
                    problem += " " + "; ".join(f"{line.server}: {_cause(line.reason)}" for line in failed[:3])
            return kind(request, problem)
    wrong = _invalid_value(problem)
    if wrong is not None:
        return wrong
    if problem.startswith(
        ("flag provided but not", "flag needs an argument", "the number of GPUs is missing")
    ):
        return errors.UsageError(problem)
    return errors.ClientFailed(request, problem, exit_status=exit_status)


def _cause(reason: str) -> str:
    # "Get https://…/claim_id: context deadline exceeded": the address is said already
    return reason.rpartition(": ")[2] or reason


def _invalid_value(problem: str) -> errors.InvalidRequest | None:
    beginning = 'invalid value "'
    if not problem.startswith(beginning):
        return None
    value, found, rest = problem[len(beginning) :].partition('" for ')
    flag, colon, allowed = rest.partition(": ")
    if not found or not colon:
        return None
    from bitfusion_client.command_line import field_of

    return errors.InvalidRequest(field_of(flag), value, allowed, flag)


def exit_words(exit_status: int | None) -> str:
    """How a process ended, for people: `ended with status 1`, `was killed by signal 9 (SIGKILL)`.

    Negative numbers are signals as subprocess reports them, 129 to 192 as the shell does.
    """
    if exit_status is None:
        return "ended in an unknown way"
    number = -exit_status if exit_status < 0 else exit_status - 128 if 128 < exit_status <= 192 else 0
    if not number:
        return f"ended with status {exit_status}"
    import signal  # not in the start-up path

    try:
        return f"was killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"was killed by signal {number}"
