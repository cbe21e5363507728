"""One row of the doctor's table: what was checked, how it is, what was seen, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bitfusion_client.one_line import one_line

OK, WARN, FAIL = "ok", "warn", "fail"
MOST_NAMED = 4
LONGEST = 240
"""Characters of a text of the cluster's."""


class Finding(NamedTuple):
    """What one check has found. `todo` says what to do about a `WARN` or `FAIL`."""

    check: str
    state: str
    seen: str
    todo: str = ""


def ok(check: str, seen: str) -> Finding:
    """All is well."""
    return Finding(check, OK, seen)


def warn(check: str, seen: str, todo: str) -> Finding:
    """Something does not work for everybody, or could not be looked at."""
    return Finding(check, WARN, seen, todo)


def fail(check: str, seen: str, todo: str) -> Finding:
    """Notebooks do not get their GPUs."""
    return Finding(check, FAIL, seen, todo)


def short(program: str) -> str:
    """What the table calls one of our programs."""
    return program.removeprefix("bitfusion-")


def named(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """``a, b and 3 more``, each as one line."""
    shown = ", ".join(one_line(name, LONGEST) for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
