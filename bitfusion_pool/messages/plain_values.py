"""JSON's plain values, checked: text, whole numbers, numbers, booleans, lists. Pure."""

from __future__ import annotations

from math import isfinite

_LARGEST = 1 << 53  # what every reader of JSON, and SQLite, keeps exactly


class WrongValue(ValueError):
    """A value that cannot be used; `str()` goes on where the value ends: ``must be text``."""


def text(value: object) -> str:
    """Text of any length that can be written as UTF-8."""
    if not isinstance(value, str):
        raise WrongValue("must be text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise WrongValue("must be text without half characters") from None
    return value


def integer(value: object) -> int:
    """A whole number of at most 53 bits."""
    if type(value) is not int or abs(value) > _LARGEST:
        raise WrongValue("must be a whole number of at most 53 bits")
    return value


def number(value: object) -> float:
    """A finite number."""
    if type(value) is int and abs(value) <= _LARGEST:
        return float(value)
    if type(value) is not float or not isfinite(value):
        raise WrongValue("must be a number")
    return value


def number_or_none(value: object) -> float | None:
    """A finite number, or null."""
    return None if value is None else number(value)


def boolean(value: object) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise WrongValue("must be true or false")
    return value


def items(value: object) -> list[object]:
    """A list of anything."""
    if not isinstance(value, list):
        raise WrongValue("must be a list")
    return value
