"""What a person reads of every error, and the tree the errors form."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from bitfusion_client import errors
from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import BitfusionError
from bitfusion_client.request.gpu_request import GpuRequest

GROUPS: dict[type[BitfusionError], set[type[BitfusionError]]] = {
    errors.WrongInput: {errors.InvalidRequest, errors.UsageError, errors.WrongSetting},
    errors.NoGpuGiven: {
        errors.NeverSatisfiable,
        errors.NoGpusAvailable,
        errors.OverLimit,
        errors.PodRefused,
        errors.WaitTimedOut,
        errors.WaitCancelled,
    },
    errors.PoolOutOfReach: {
        errors.ClientNotFound,
        errors.ServersUnreachable,
        errors.TokenExpired,
        errors.PoolUnreadable,
        errors.ClusterUnusable,
    },
    errors.InvalidRequest: {errors.WrongKey},
    errors.ProcessDied: {errors.WrapperDied, errors.KernelDied, errors.PoolLost, errors.PodLost},
    BitfusionError: {errors.ClientFailed},
}
KINDS = sorted({BitfusionError}.union(*GROUPS.values()), key=lambda kind: kind.__name__)


def made(kind: type[BitfusionError]) -> BitfusionError:
    if kind is errors.InvalidRequest:
        return errors.InvalidRequest("partial", "2", "must be less")
    if kind is errors.WrongKey:
        return errors.WrongKey("bitfusion.io/gpus", "2", "is no size", "Write gpu-amount.")
    if kind is errors.WrongSetting:
        return errors.WrongSetting("partial", "2", "must be less", "BITFUSION_PARTIAL")
    if kind is errors.UsageError:
        return errors.UsageError("what is that", "ask again")
    if kind is errors.ClientNotFound:
        return errors.ClientNotFound(["PATH", "/bitfusion"])
    return kind(GpuRequest(2), "words of the pool")


RESTART = (
    "restart the kernel, unless Jupyter has done that already, and run the cells again from the first one."
)
MESSAGES = {
    "BitfusionError": ("The GPU pool could not do this.", "words of the pool", ""),
    "ClientFailed": (
        "The `bitfusion` client failed.",
        "words of the pool",
        "`%bitfusion log` shows its whole output, `%bitfusion health` the state of the servers.",
    ),
    "KernelDied": (
        "The kernel has died.",
        "words of the pool",
        RESTART,
    ),
    "NeverSatisfiable": (
        "No server in the pool can ever satisfy this request.",
        "words of the pool",
        "request fewer GPUs or less memory (`%bitfusion request -n 1`); "
        "`%bitfusion list_gpus` shows the servers.",
    ),
    "NoGpusAvailable": (
        "No GPU is free right now.",
        "words of the pool",
        "run the cell again later, or ask for less; `%bitfusion pool` shows who holds the GPUs.",
    ),
    "PoolLost": (
        "The GPU pool was out of reach for too long, so this kernel was ended.",
        "words of the pool",
        f"when the pool is back (`%bitfusion health`), {RESTART}",
    ),
    "OverLimit": (
        "You have reached your limit in this pool.",
        "words of the pool",
        "release something first; `%bitfusion pool` shows who holds what.",
    ),
    "PodRefused": (
        "The cluster cannot run a pod with a GPU for this request.",
        "words of the pool",
        "ask your administrator; `%bitfusion log` shows everything that the cluster reported.",
    ),
    "ClusterUnusable": (
        "The cluster cannot be reached to request a GPU.",
        "words of the pool",
        "try again; `%bitfusion health` shows what is wrong.",
    ),
    "PodLost": (
        "The pod in which this kernel ran has ended, and its GPUs are gone.",
        "words of the pool",
        RESTART,
    ),
    "PoolUnreadable": (
        "The embedded GPU pool cannot be used.",
        "words of the pool",
        "`bitfusion health` checks the pool's files.",
    ),
    "ServersUnreachable": (
        "None of the GPU servers answered.",
        "words of the pool",
        "try again; `%bitfusion health` shows what is wrong. If that does not help, your administrator must "
        "check the network and this client's token.",
    ),
    "TokenExpired": (
        "This client's access to the GPU pool has expired.",
        "words of the pool",
        "ask your administrator for a new token or a later expiry date for the client.",
    ),
    "WaitCancelled": (
        "Waiting for GPUs was cancelled.",
        "words of the pool",
        "run the cell again to wait again.",
    ),
    "WaitTimedOut": (
        "No GPU became free in time.",
        "words of the pool",
        "run the cell again, ask for less, or wait longer (`%bitfusion request --timeout 2h`); "
        "`%bitfusion pool` shows who holds the GPUs.",
    ),
    "WrapperDied": (
        "The `bitfusion run` process under this kernel has died; its GPUs are gone.",
        "words of the pool",
        RESTART,
    ),
}


def test_every_error_has_its_group_and_stands_in_the_tree_of_the_docstring() -> None:
    defined = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BitfusionError)
    }
    assert defined - {errors.PrintedError} == {BitfusionError, *GROUPS, *KINDS}
    for group, kinds in GROUPS.items():
        assert {kind.__base__ for kind in kinds} == {group}
    assert errors.__doc__ is not None
    drawn = re.findall(r"^ {4}[│├└─ ]*(\w+)", errors.__doc__, re.MULTILINE)
    assert sorted(drawn) == sorted(kind.__name__ for kind in defined - {errors.PrintedError})


@pytest.mark.parametrize(
    "kind",
    [errors.OverLimit, errors.PodRefused, errors.ClusterUnusable, errors.PoolUnreadable, errors.PodLost],
)
def test_what_the_command_prints_is_read_as_the_same_error(kind: type[errors.PrintedError]) -> None:
    beginning = "" if kind.BEGINNING else "pool ledger "
    printed = kind("1 GPU", f"{beginning}quota gpus is full", "ask for less")
    read = error_from_output([f"Error: {printed}"], 1)
    assert type(read) is kind
    assert (read.answered, read.next_step) == (printed.answered, "ask for less")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_a_person_reads(kind: type[BitfusionError]) -> None:
    if kind.__name__ in MESSAGES:
        headline, answer, next_step = MESSAGES[kind.__name__]
        expected = f"{headline}\nAsked for: 2 GPUs\nAnswer: {answer}"
        expected += f"\nWhat to do: {next_step}" if next_step else ""
    else:
        expected = {
            "InvalidRequest": 'Invalid value "2" for partial: must be less',
            "WrongKey": "bitfusion.io/gpus is no size",
            "WrongSetting": 'Wrong setting partial="2" (from BITFUSION_PARTIAL): must be less',
            "UsageError": "what is that\nWhat to do: ask again",
            "ClientNotFound": (
                "There is no `bitfusion` command on this machine.\n"
                "Answer: looked at PATH, /bitfusion\n"
                "What to do: install the client, put it on PATH, or set BITFUSION_CLIENT to its path; "
                "without one, reinstall kubeflow-bitfusion to get the embedded pool back."
            ),
        }[kind.__name__]
    assert made(kind).user_message == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_travel(kind: type[BitfusionError]) -> None:
    error = made(kind)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert other.user_message == error.user_message
        assert str(other) == str(error)
        assert "\n" not in str(error)


def test_nothing_makes_a_message_longer_than_four_lines() -> None:
    error = BitfusionError("two\nlines", "x\n" * 10_000, "do\nthis")
    assert len(error.user_message.splitlines()) == 4
    assert max(map(len, error.user_message.splitlines())) <= 420
    assert BitfusionError().user_message == "The GPU pool could not do this."
    assert str(BitfusionError()) == "The GPU pool could not do this."


def test_nothing_of_others_controls_a_terminal() -> None:
    assert BitfusionError(answered="a\x1b[31m\u202eb").answered == "a\\x1b[31m\\u202eb"
    wrong = errors.InvalidRequest("x", "1", "must not be", "a\r\n\x07b")
    assert wrong.user_message == 'Invalid value "1" for a \\x07b: must not be'
    setting = errors.WrongSetting("a\nb", "c\nd", "must be one line", "e\nf")
    assert setting.user_message == 'Wrong setting a b="c d" (from e f): must be one line'


def test_a_step_of_ones_own() -> None:
    error = errors.WaitCancelled("1 GPU", "interrupted", "nothing")
    assert error.user_message == (
        "Waiting for GPUs was cancelled.\nAsked for: 1 GPU\nAnswer: interrupted\nWhat to do: nothing"
    )


def test_a_setting_without_a_source() -> None:
    error = errors.WrongSetting("gpus", 0, "must be at least 1")
    assert str(error) == 'wrong setting gpus="0": must be at least 1'
