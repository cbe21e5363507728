"""Which requests were meant for the kernel before this one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.protocol.message_date import RECONNECTION, meant_for_predecessor

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)


def _meant(date: Any, age: float = 0.1) -> bool:
    started_at = START.timestamp()
    return meant_for_predecessor({"date": date}, started_at=started_at, now=started_at + age)


@pytest.mark.parametrize(
    ("date", "meant"),
    [
        ("2026-03-01T11:59:59.990000Z", True),
        ("2026-03-01T11:59:59.990000+00:00", True),
        ("2026-03-01T13:59:59.990000+02:00", True),
        ("2026-03-01T12:00:00.010000Z", False),
        ("2026-03-01T13:00:00.010000+01:00", False),
        ("2026-03-01T11:59:59.990000", False),  # of no zone
        ("0001-01-01T00:00:00+14:00", True),
        ("yesterday", False),
        ("", False),
        (None, False),
        (1772366399.99, False),
        ({}, False),
    ],
)
def test_by_the_date_of_the_header(date: Any, *, meant: bool) -> None:
    assert _meant(date) is meant


def test_no_date_is_no_reason() -> None:
    assert not meant_for_predecessor({}, started_at=100.0, now=100.0)


def test_a_kernel_that_has_run_for_a_while_has_met_all_that_waited_for_it() -> None:
    before = (START - timedelta(hours=1)).isoformat()
    assert _meant(before, age=RECONNECTION - 0.1)
    assert not _meant(before, age=RECONNECTION + 0.1), "a client with a slow clock could never interrupt"


@given(st.text())
def test_no_date_crashes(date: str) -> None:
    assert _meant(date) in (False, True)
