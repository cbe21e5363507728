"""Decimal numbers as text without an exponent: format a float, move the decimal point."""

from __future__ import annotations


def plain_number(value: float) -> str:
    """The shortest text without an exponent that reads back as the same float: 0.5, 1, 0.00001."""
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    if e:
        whole, fraction = _shifted(whole, fraction, int(exponent))
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def shift_point(number: str, places: int) -> str:
    """A plain non-negative number with its decimal point moved to the right: ("0.37", 2) is "37"."""
    whole, _, fraction = number.partition(".")
    whole, fraction = _shifted(whole, fraction, places)
    whole = whole.lstrip("0") or "0"
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _shifted(whole: str, fraction: str, places: int) -> tuple[str, str]:
    if places >= 0:
        fraction = fraction.ljust(places, "0")
        return whole + fraction[:places], fraction[places:]
    whole = whole.rjust(1 - places, "0")
    return whole[:places], whole[places:] + fraction
