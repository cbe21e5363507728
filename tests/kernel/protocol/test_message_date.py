"""When a message was sent, in every spelling of its date, and where it has none."""

from __future__ import annotations

import pytest

from bitfusion_kernel.protocol.message_date import sent_at


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("2026-11-22T08:46:33.250Z", 1795337193.25),
        ("2026-11-22T08:46:33.250000+00:00", 1795337193.25),
        ("2026-11-22T10:46:33+02:00", 1795337193.0),
        ("2026-11-22T08:46:33", None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", -62135647200.0),
        ("", None),
        (None, None),
        (17, None),
    ],
)
def test_the_date_of_a_header_as_seconds(date: object, seconds: float | None) -> None:
    assert sent_at({"date": date}) == seconds
    assert sent_at({}) is None
