"""Amounts of memory, in Kubernetes' spelling and in people's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.one_line import shown_value
from bitfusion_client.request.quantities import (
    format_mib,
    is_zero,
    parse_gpu_memory,
    parse_memory,
    parse_quantity,
    quantity_to_count,
    quantity_to_mib,
)
from tests.client.strategies import refusal

QUANTITY = "must be an amount of at least 1 MiB, such as 8000Mi, 8Gi or 8G"
MEMORY = "must be an amount of memory, such as 8Gi, 8GB or 8192 (MiB)"
COUNT = "must be a whole number from 1 to 1024"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # the examples of the Kubernetes documentation are one amount
        ("128974848", 128974848),
        ("129e6", 129000000),
        ("129M", 129000000),
        ("128974848000m", 128974848),
        ("123Mi", 128974848),
        ("0.1", Fraction(1, 10)),
        ("100m", Fraction(1, 10)),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("5u", Fraction(5, 10**6)),
        ("5n", Fraction(5, 10**9)),
        ("+1k", 1000),
        ("-1Ki", -1024),
        (".5Gi", 1 << 29),
        ("1.", 1),
        (2, 2),
        (0.5, Fraction(1, 2)),
        (1e-07, Fraction(1, 10**7)),
    ],
)
def test_quantities(text: Any, value: Any) -> None:
    assert Fraction(*parse_quantity(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1K",
        "1ki",
        "1KB",
        "1..2",
        ".",
        "-",
        "1e",
        "1e+",
        "1e1.5",
        "1e99",
        "9" * 65,
        "٣",
        "1e--3",
        "nan",
        True,
        None,
        [],
        float("inf"),
        pytest.param(10**6000, id="huge"),
    ],
)
def test_what_is_no_quantity(text: Any) -> None:
    with pytest.raises(ValueError, match=r"quantity|suffix|exponent|digits"):
        parse_quantity(text)


@given(
    st.sampled_from(["", "+", "-"]),
    st.sampled_from(["0", "00", "0.", ".0", "0.000", "000.0"]),
    st.sampled_from(
        ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+0", "e31", "e-999"]
    ),
)
def test_zero_is_zero_in_whatever_spelling(sign: str, digits: str, suffix: str) -> None:
    assert is_zero(sign + digits + suffix)
    assert not is_zero(f"{sign}{digits.replace('0', '1')}{suffix}")


@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_zero_is_zero_as_a_number(value: float) -> None:
    assert is_zero(value)


@pytest.mark.parametrize(
    "value", ["", "x", "0x0", " 0", "0 ", "0KB", "e3", "-", ".", False, None, [], {}, "٠"]
)
def test_what_is_no_quantity_is_not_zero(value: object) -> None:
    assert not is_zero(value)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("8Gi", 8192),
        ("8000Mi", 8000),
        ("8000M", 7629),
        ("8G", 7629),
        ("8000000000", 7629),
        ("16945M", 16160),  # a 16160 MiB card, as decimal megabytes rounded up
        ("1.5Gi", 1536),
        ("1Mi", 1),
        (8589934592, 8192),
    ],
)
def test_decimal_is_decimal_and_binary_is_binary(text: Any, mib: int) -> None:
    assert quantity_to_mib(text) == mib


@pytest.mark.parametrize("text", ["0", "1", "-8Gi", "1048575", "much", None])
def test_wrong_amounts(text: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        quantity_to_mib(text, "bitfusion.io/gpu-memory")
    assert (
        caught.value.user_message
        == f'Invalid value "{shown_value(text)}" for bitfusion.io/gpu-memory: {QUANTITY}'
    )


@pytest.mark.parametrize(
    ("text", "count"), [("2", 2), (2, 2), ("2000m", 2), ("1k", 1000), ("0", 0), ("2.0", 2)]
)
def test_counts(text: Any, count: int) -> None:
    assert quantity_to_count(text) == count


@pytest.mark.parametrize("text", ["1.5", "500m", "-1", "two", "", None, "9" * 5000])
def test_wrong_counts(text: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        quantity_to_count(text, "bitfusion.io/gpu-50")
    assert (
        caught.value.user_message == f'Invalid value "{shown_value(text)}" for bitfusion.io/gpu-50: {COUNT}'
    )


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("8192", 8192),
        (8192, 8192),
        ("8192 MiB", 8192),
        ("8192MiB", 8192),
        ("8 GiB", 8192),
        ("8Gi", 8192),
        ("8000M", 7629),
        ("8 GB", 7629),
        (" 8Gi ", 8192),
        ("0.5Gi", 512),
    ],
)
def test_memory_in_settings(text: Any, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["", "0", "8 G B", "lots", "8 Gib i", "-5", "8B", True, None, 0.5, -1])
def test_wrong_memory_in_settings(text: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_memory(text)
    assert caught.value.user_message == f'Invalid value "{shown_value(text)}" for memory: {MEMORY}'


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("8", "; did you mean 8Gi?"),
        (8, "; did you mean 8Gi?"),
        (" 16 MiB", "; did you mean 16Gi?"),
        ("255", "; did you mean 255Gi?"),
        ("8M", "; did you mean 8Gi?"),
        ("8000k", "; did you mean 8000Mi?"),
        ("0.1Gi", ""),
        ("1000000k", None),
    ],
)
def test_memory_of_a_gpu_that_is_too_little_was_meant_in_another_unit(text: Any, meant: str | None) -> None:
    if meant is None:
        assert parse_gpu_memory(text) >= 256
        return
    with pytest.raises(InvalidRequest) as caught:
        parse_gpu_memory(text)
    assert caught.value.allowed == f"must be at least 256 MiB{meant}"


def test_every_amount_that_is_suggested_is_accepted() -> None:
    for written in (*(f"{number} MiB" for number in range(1, 256)), "8000k", "100000k"):
        with pytest.raises(InvalidRequest) as caught:
            parse_gpu_memory(written)
        parse_gpu_memory(caught.value.allowed.partition("mean ")[2].rstrip("?"))


@given(st.integers(1, 1 << 40))
def test_amounts_read_back(mib: int) -> None:
    assert quantity_to_mib(format_mib(mib)) == mib
    assert parse_memory(str(mib)) == parse_memory(f"{mib} MiB") == parse_memory(mib) == mib


def test_amounts_as_people_like_them() -> None:
    assert [format_mib(mib) for mib in (8192, 8000, 1)] == ["8Gi", "8000Mi", "1Mi"]


@given(st.one_of(st.text(), st.text("0123456789.eE+-kKMGTiBm "), st.integers(), st.floats(), st.none()))
def test_no_value_crashes_the_readers(value: Any) -> None:
    refusal(quantity_to_mib, value)
    refusal(quantity_to_count, value)
    refusal(parse_memory, value)
    refusal(parse_gpu_memory, value)
