"""Decimal text keeps every digit and has no exponent."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from bitfusion_client.request.decimals import plain_number, shift_point
from tests.client.strategies import PARTIALS


@given(PARTIALS)
def test_numbers_without_exponents(value: Any) -> None:
    text = plain_number(value)
    assert "e" not in text
    assert float(text) == value
    assert float(shift_point(shift_point(text, 2), -2)) == value


def test_numbers_as_the_client_writes_them() -> None:
    assert [plain_number(value) for value in (1, 0.5, 0.37, 1e-05, 1e22)] == [
        "1",
        "0.5",
        "0.37",
        "0.00001",
        "1" + "0" * 22,
    ]
