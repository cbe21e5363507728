"""One ladder: whatever was raised has a code, a status, and words."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import (
    BitfusionError,
    ClientFailed,
    ClientNotFound,
    InvalidRequest,
    OverLimit,
    ServersUnreachable,
)
from jupyter_ext.server import errors


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (InvalidRequest("gpus", 0, "must be 1"), "wrong_input", 400),
        (ServersUnreachable("", "i/o timeout"), "pool_out_of_reach", 503),
        (ClientNotFound(["PATH"]), "pool_out_of_reach", 503),
        (ClientFailed("list_gpus", "it broke"), "pool_out_of_reach", 503),
        (OverLimit("1 GPU", "you hold 2"), "refused", 409),
    ],
)
def test_the_vocabularys_errors_keep_their_words(error: BitfusionError, code: str, status: int) -> None:
    found = errors.of_bitfusion(error)
    assert (found.code, found.status) == (code, status)
    assert found.message.splitlines()[0] == error.user_message.splitlines()[0]
    assert "What to do" not in found.message


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "wrong_input"),
        (403, "forbidden"),
        (404, "not_found"),
        (405, "wrong_input"),
        (413, "wrong_input"),
        (500, "internal"),
        (599, "internal"),
    ],
)
def test_refusals_of_the_server_have_a_code_and_a_next_step(status: int, code: str) -> None:
    error = errors.of_status(status)
    assert error.code == code
    assert error.message
    assert error.next_step


def test_a_fault_tells_nothing_of_its_inside() -> None:
    assert "secret" not in str(errors.of_status(500, "secret").to_json())


def test_the_words_of_a_kernel_are_split_into_what_and_what_to_do() -> None:
    told = "No server can give that.\nAsked for: 9 GPUs\nWhat to do: ask for less."
    assert errors.of_words(told).to_json() == {
        "code": "refused",
        "message": "No server can give that.\nAsked for: 9 GPUs",
        "next_step": "ask for less.",
    }
