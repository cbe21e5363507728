"""Clock times in texts that people read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bitfusion_client.clock_time import clock_time, elapsed_text

AT = 1_795_269_787.0  # 2026-11-21 14:03:07 UTC


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "later", "text"),
    [
        ("UTC0", 60, "14:03 UTC"),
        ("CET-1", 60, "15:03"),
        ("CET-1", 86_400, "2026-11-21 15:03"),
        ("IST-5:30", 5 * 3600, "2026-11-21 19:33"),
        ("UTC0", 86_400, "2026-11-21 14:03 UTC"),
    ],
    indirect=["zone"],
)
@pytest.mark.usefixtures("zone")
def test_a_time_has_its_date_on_other_days_and_names_utc(later: float, text: str) -> None:
    assert clock_time(AT, AT + later) == text


@pytest.mark.parametrize(
    ("zone", "later", "text"),
    [("CET-1", 60, "15:03:07"), ("UTC0", 86_400, "2026-11-21 14:03:07 UTC")],
    indirect=["zone"],
)
@pytest.mark.usefixtures("zone")
def test_where_seconds_matter_they_are_told(later: float, text: str) -> None:
    assert clock_time(AT, AT + later, seconds=True) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599, "59 min 59 s"),
        (3720, "1 h 02 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert elapsed_text(seconds) == text
