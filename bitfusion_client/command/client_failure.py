"""Which error a failed `bitfusion` command means, from the last lines it printed and its exit status."""

from __future__ import annotations

from bitfusion_client import errors
from bitfusion_client.command.client_lines import ContactFailed, FatalError, Line, PoolLost, TokenExpiredLine
from bitfusion_client.command.client_output import parse_line, split_log_prefix
from bitfusion_client.command.command_line import field_of
from bitfusion_client.command.exit_status import describe_exit, from_shell
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_client.request.gpu_request import GpuRequest

SHOWN_LINES = 3  # of a failure that fits no class

# Parts of fatal errors, in lower case: documented ones and the embedded pool's own. Those of NoGpusAvailable
# are guesses besides: what a real client prints when the pool is full is not known.
_MEANINGS: tuple[tuple[type[errors.BitfusionError], tuple[str, ...]], ...] = (
    (errors.TokenExpired, ("token expired", "token has expired")),
    (errors.NeverSatisfiable, ("no server can satisfy",)),
    (errors.WaitTimedOut, ("timed out after", "timed out waiting")),
    (
        errors.PoolUnreadable,
        ("pool ledger", "pool configuration", "pool folder", "pool cannot write", "pool service"),
    ),
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

_PRINTED: tuple[type[errors.PrintedError], ...] = (
    errors.OverLimit,
    errors.PodRefused,
    errors.ClusterUnusable,
    errors.PodLost,
)
"""Known by their beginnings."""


def error_from_output(
    lines: Sequence[str], exit_status: int | None, request: GpuRequest | None = None
) -> errors.BitfusionError:
    """The error of a client that ended without having run its program. Never raises.

    Args:
        lines: Everything it printed, or the last lines.
        exit_status: 128 + signal as a shell counts, or negative for a signal; None if unknown.
        request: What it was asked for.

    Returns:
        ClientFailed, with the last lines, for what fits no other class.
    """
    parsed = [parse_line(line) for line in lines]
    for line in parsed:
        if isinstance(line, TokenExpiredLine):
            return errors.TokenExpired(request, line.text)
    for line in reversed(parsed):
        if isinstance(line, PoolLost):
            return errors.PoolLost(request, line.problem)
        if isinstance(line, FatalError):
            return _from_problem(line.problem, parsed, exit_status, request)
    messages = [split_log_prefix(line.text)[2].strip() for line in parsed]
    shown = [message for message in messages if message][-SHOWN_LINES:]
    ending = describe_exit(from_shell(exit_status))
    # the cause first: the lines may be long, and what is shown of an answer is not
    last = f"it {ending}; its last output: {' | '.join(shown)}"
    answered = last if shown else f"it printed nothing and {ending}"
    return errors.ClientFailed(request, answered, exit_status=exit_status)


def _from_problem(
    problem: str, parsed: list[Line], exit_status: int | None, request: GpuRequest | None
) -> errors.BitfusionError:
    for printed in _PRINTED:
        if problem.startswith(printed.BEGINNING):
            return printed.from_text(request, problem)
    small = problem.lower()
    for kind, words in _MEANINGS:
        if any(word in small for word in words):
            if kind is errors.ServersUnreachable:
                problem, _, cure = problem.partition(errors.ServersUnreachable.CURE)
                failed = [line for line in parsed if isinstance(line, ContactFailed)]
                if failed:
                    problem += " " + "; ".join(f"{line.server}: {_cause(line.reason)}" for line in failed[:3])
                return kind(request, problem, cure)
            if kind is errors.PoolUnreadable:
                return errors.PoolUnreadable.from_text(request, problem)
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
    # "Get https://…/claim_id: context deadline exceeded": the message names the address already
    return reason.rpartition(": ")[2] or reason


def _invalid_value(problem: str) -> errors.InvalidRequest | None:
    beginning = 'invalid value "'
    if not problem.startswith(beginning):
        return None
    value, found, rest = problem[len(beginning) :].partition('" for ')
    flag, colon, allowed = rest.partition(": ")
    if not found or not colon:
        return None
    return errors.InvalidRequest(field_of(flag), value, allowed, flag)
