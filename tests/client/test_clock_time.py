"""Clock times in texts that people read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bitfusion_client.clock_time import clock_time

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
