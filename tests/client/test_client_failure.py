"""The error that a failed client's last lines and exit status mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client import errors
from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.request.gpu_request import GpuRequest

LOGS = Path(__file__).parent / "logs"
REQUEST = GpuRequest(1, 0.5)
TRY_LATER = "run the cell again later, or ask for less; `%bitfusion pool` shows who holds the GPUs."
ASK_LESS = (
    "request fewer GPUs or less memory (`%bitfusion request -n 1`); `%bitfusion list_gpus` shows the servers."
)
UNREACHABLE = (
    "try again; `%bitfusion health` shows what is wrong. If that does not help, your administrator must "
    "check the network and this client's token."
)
LONGER = (
    "run the cell again, ask for less, or wait longer (`%bitfusion request --timeout 2h`); "
    "`%bitfusion pool` shows who holds the GPUs."
)
LOOK = "`%bitfusion log` shows its whole output, `%bitfusion health` the state of the servers."
CLAIM = "none of the servers responded correctly to client id claim requests."


@pytest.mark.parametrize(
    ("text", "kind", "headline", "answer", "next_step"),
    [
        (
            "Error: no server can satisfy the request: 4 GPUs with 16160 MiB of memory each; "
            "the largest server has 2 GPUs with 16160 MiB",
            errors.NeverSatisfiable,
            "No server in the pool can ever satisfy this request.",
            "no server can satisfy the request: 4 GPUs with 16160 MiB of memory each; "
            "the largest server has 2 GPUs with 16160 MiB",
            ASK_LESS,
        ),
        (
            "Error: pool a:1 was out of reach for 90 s, so the program was ended: "
            "its GPUs may be given to others",
            errors.PoolLost,
            "The GPU pool was out of reach for too long, so this kernel was ended.",
            "pool a:1 was out of reach for 90 s, so the program was ended: its GPUs may be given to others",
            "when the pool is back (`%bitfusion health`), restart the kernel, unless Jupyter has done that "
            "already, and run the cells again from the first one.",
        ),
        (
            "Error: timed out after 30m0s waiting for 1 GPUs",
            errors.WaitTimedOut,
            "No GPU became free in time.",
            "timed out after 30m0s waiting for 1 GPUs",
            LONGER,
        ),
        (
            "Error: not enough GPUs available: 1 of 2",
            errors.NoGpusAvailable,
            "No GPU is free right now.",
            "not enough GPUs available: 1 of 2",
            TRY_LATER,
        ),
        (
            "Error: pool ledger /home/x is damaged: not a database. What to do: make a new one",
            errors.PoolUnreadable,
            "The embedded GPU pool cannot be used.",
            "pool ledger /home/x is damaged: not a database",
            "make a new one",
        ),
        (
            "Token expired at: 2022-09-03T00:39:23Z\nError: " + CLAIM,
            errors.TokenExpired,
            "This client's access to the GPU pool has expired.",
            "Token expired at: 2022-09-03T00:39:23Z",
            "ask your administrator for a new token or a later expiry date for the client.",
        ),
        (
            (LOGS / "claim-deadline.txt").read_text(),
            errors.ServersUnreachable,
            "None of the GPU servers answered.",
            CLAIM + " 10.117.32.156:56001: context deadline exceeded",
            UNREACHABLE,
        ),
        (
            (LOGS / "claim-network.txt").read_text(),
            errors.ServersUnreachable,
            "None of the GPU servers answered.",
            CLAIM + " 10.117.32.156:56001: i/o timeout",
            UNREACHABLE,
        ),
        (
            (LOGS / "claim-servers-conf.txt").read_text(),
            errors.ServersUnreachable,
            "None of the GPU servers answered.",
            CLAIM,
            UNREACHABLE,
        ),
        (
            "Error: the moon is full",
            errors.ClientFailed,
            "The `bitfusion` client failed.",
            "the moon is full",
            LOOK,
        ),
        (
            "one\ntwo\n\n[WARN] 2021-03-29T01:05:37Z three\nfour\n",
            errors.ClientFailed,
            "The `bitfusion` client failed.",
            "it ended with exit code 3; its last output: two | three | four",
            LOOK,
        ),
        (
            "",
            errors.ClientFailed,
            "The `bitfusion` client failed.",
            "it printed nothing and ended with exit code 3",
            LOOK,
        ),
    ],
)
def test_meanings(
    text: str, kind: type[errors.BitfusionError], headline: str, answer: str, next_step: str
) -> None:
    error = error_from_output(text.splitlines(), 3, REQUEST)
    assert type(error) is kind
    assert error.user_message == (
        f"{headline}\nAsked for: 1 GPU × 50 %\nAnswer: {answer}\nWhat to do: {next_step}"
    )


def test_wrong_values_keep_the_client_s_words() -> None:
    text = 'invalid value "1.5" for -p: must be greater than 0.0 and at most 1.0'
    error = error_from_output(["Error: " + text], 1, REQUEST)
    assert isinstance(error, errors.InvalidRequest)
    assert (error.field, error.value, error.spelled) == ("partial", "1.5", "-p")
    assert str(error) == text
    assert type(error_from_output(['Error: invalid value "x"'], 1)) is errors.ClientFailed
    for text in (
        "flag provided but not defined: -x",
        "flag needs an argument: -n",
        "the number of GPUs is missing: -n",
    ):
        usage = error_from_output(["Error: " + text], 1)
        assert type(usage) is errors.UsageError
        assert usage.user_message == text


def test_the_last_fatal_line_counts() -> None:
    error = error_from_output(["Error: first", "Error: timed out after 1s waiting for 1 GPUs", "bye"], 1)
    assert type(error) is errors.WaitTimedOut


def test_the_exit_status_is_kept() -> None:
    error = error_from_output([], -9, REQUEST)
    assert isinstance(error, errors.ClientFailed)
    assert error.exit_status == -9
    assert error.answered == "it printed nothing and was killed by SIGKILL"


BEGINNINGS = st.sampled_from(
    ["", "Error: ", "Token expired at: ", 'Error: invalid value "', "Error: none of the servers responded"]
)


@given(
    st.lists(st.builds("{}{}".format, BEGINNINGS, st.text())),
    st.one_of(st.none(), st.integers(-300, 300)),
    st.one_of(st.none(), st.just(REQUEST)),
)
def test_no_text_crashes_the_reader(lines: list[str], status: int | None, request_: GpuRequest) -> None:
    error = error_from_output(lines, status, request_)
    message = error.user_message
    assert 1 <= len(message.splitlines()) <= 4
    assert len(message) < 2000
