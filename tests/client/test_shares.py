"""Shares of a GPU as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.shares import parse_share
from tests.client.strategies import refusal

ALLOWED = "must be greater than 0.0 and at most 1.0"


@pytest.mark.parametrize(
    ("given_", "share"), [("0.5", 0.5), (" 1 ", 1.0), (".25", 0.25), ("1e-2", 0.01), (1, 1.0), (0.5, 0.5)]
)
def test_read(given_: Any, share: float) -> None:
    assert parse_share(given_) == share


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ("50%", "0.5"),
        ("50 %", "0.5"),
        ("50", "0.5"),
        (50, "0.5"),
        (50.0, "0.5"),
        ("0,5", "0.5"),
        (",5", "0.5"),
        ("12,5 %", "0.125"),
        ("33.3%", "0.333"),
        ("0.5%", "0.005"),
        ("100%", "1"),
        ("10", "0.1"),
        ("1/2", "0.5"),
        ("1/3", "0.3333"),
    ],
)
def test_a_share_in_another_spelling_is_told_in_ours(given_: Any, meant: str) -> None:
    for spelled, written in (("", meant), ("-p", f"-p {meant}"), ("--partial", f"--partial {meant}")):
        with pytest.raises(InvalidRequest) as caught:
            parse_share(given_, spelled)
        assert caught.value.allowed == f"{ALLOWED}; write {written}"
    assert parse_share(meant)


@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        ("-p", "write -n 2"),
        ("--partial", "write --num_gpus 2"),
        ("--share", "write --gpus 2"),
        ("", "set gpus to 2"),
    ],
)
@pytest.mark.parametrize("given_", ["2", " 2.0 ", 2, 2.0])
def test_a_share_that_counts_gpus_is_told_how_these_are_asked_for(
    given_: Any, flag: str, instead: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_share(given_, flag)
    assert caught.value.allowed == f"{ALLOWED}; for 2 GPUs {instead}"


@pytest.mark.parametrize(
    "given_",
    ["", "half", "1.5", "0", "0%", "150%", "-1", "nan", "1/0", "2/1", "0_1", "101", None, True],
)
def test_what_can_mean_no_share_is_told_with_what_is_allowed(given_: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_share(given_, "-p")
    assert caught.value.allowed == ALLOWED


@given(st.one_of(st.text(), st.text("0123456789.,%/ eE+-"), st.integers(), st.floats(), st.none()))
def test_no_value_crashes_the_reader(value: Any) -> None:
    refusal(parse_share, value)
