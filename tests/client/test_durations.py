"""Durations read back as they are written, as the Go client spells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.durations import (
    format_duration,
    format_duration_short,
    parse_duration,
)
from tests.client.strategies import refusal


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("30m", 1800),
        ("2m30s", 150),
        ("1.5h", 5400),
        ("1h0m0s", 3600),
        ("250ms", 0.25),
        ("10us", 1e-05),
        ("10µs", 1e-05),
        ("7ns", 7e-09),
        (".5s", 0.5),
        (" 30m ", 1800),
        ("0s", 0),
        ("9s".rjust(64, "0"), 9),
    ],
)
def test_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "30 m", "-5s", "1d", "5s3", "1..2s", ".", "1e3", "9s".rjust(65, "0"), "٣s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_duration(text)
    assert str(caught.value) == (
        f'invalid value "{text}" for timeout: '
        "must be a duration, such as 90, 30m or 2m30s, longer than 0 and at most 2400h"
    )


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (1800, "30m0s", "30m"),
        (150, "2m30s", "2m30s"),
        (3600, "1h0m0s", "1h"),
        (3660, "1h1m0s", "1h1m"),
        (3601, "1h0m1s", "1h0m1s"),
        (36000, "10h0m0s", "10h"),
        (20, "20s", "20s"),
        (1.5, "1.5s", "1.5s"),
        (0.25, "250ms", "250ms"),
        (1.5e-05, "15µs", "15µs"),
        (5e-09, "5ns", "5ns"),
        (0, "0s", "0s"),
        (-90, "-1m30s", "-1m30s"),
    ],
)
def test_write(seconds: float, long: str, short: str) -> None:
    assert format_duration(seconds) == long
    assert format_duration_short(seconds) == short


@given(st.integers(0, 2400 * 3600 * 10**9))
def test_read_back(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert parse_duration(format_duration(seconds)) == seconds
    assert parse_duration(format_duration_short(seconds)) == seconds


@given(st.one_of(st.text(), st.text("0123456789.hmsnuµ ")))
def test_no_text_crashes_the_reader(text: str) -> None:
    if refusal(parse_duration, text) is None:
        assert parse_duration(text) >= 0
