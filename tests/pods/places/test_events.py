"""The events of one pod among others, in order, in both forms; and times as Kubernetes writes them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.places.events import MOST, events_of
from bitfusion_pods.places.statuses import seconds
from tests.pods.places.anything import anything
from tests.pods.places.recorded import UID, clock, event


def test_only_the_pods_own_events_count_newest_first() -> None:
    other = event("Pulling", at=50)
    other["involvedObject"]["uid"] = "another"
    found = events_of([event("Scheduled", at=2), other, event("Pulled", at=9), event("Pulling", at=5)], UID)
    assert [each.reason for each in found] == ["Pulled", "Pulling", "Scheduled"]
    nobodys = event("Scheduled", at=2)
    nobodys["involvedObject"]["uid"] = ""
    assert events_of([nobodys], "") == []


def test_of_one_second_the_name_tells_the_order() -> None:
    first, second = event("Pulling", at=5), event("Pulled", at=5)
    assert [each.reason for each in events_of([second, first], UID)] == ["Pulled", "Pulling"]


def test_a_time_in_microseconds_is_no_later_than_one_in_seconds() -> None:
    scheduled = event("Scheduled", source="default-scheduler") | {
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": "2026-11-25T10:00:05.123456Z",
    }
    pulled = event("Pulled", at=5)
    assert [each.reason for each in events_of([pulled, scheduled], UID)] == ["Pulled", "Scheduled"]


def test_a_series_counts_from_its_last() -> None:
    series = event("FailedScheduling", "first words", source="")
    series |= {
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": "2026-11-25T10:00:01.250000Z",
        "series": {"count": 7, "lastObservedTime": "2026-11-25T10:00:31.000000Z"},
        "reportingComponent": "default-scheduler",
    }
    (found,) = events_of([series], UID)
    assert found.at - found.since == 29.75
    assert found.source == "default-scheduler"


def test_events_of_the_newer_api_are_read_as_well() -> None:
    newer = {
        "metadata": {"name": "x"},
        "regarding": {"uid": UID, "fieldPath": "spec.containers{program}"},
        "reason": "Pulling",
        "note": "Pulling image",
        "deprecatedLastTimestamp": None,
        "eventTime": clock(3)[:-1] + ".5Z",
    }
    (found,) = events_of([newer], UID)
    whole = seconds(clock(3))
    assert whole is not None
    assert (found.message, found.container, found.at) == ("Pulling image", "program", whole + 0.5)


def test_of_thousands_the_newest_are_kept_and_long_ones_cut() -> None:
    events = [event("BackOff", "x" * 100_000, at=number % 60) for number in range(5000)]
    found = events_of(events, UID)
    assert len(found) == MOST
    assert {each.at for each in found} == {seconds(clock(59)), seconds(clock(58))}
    assert all(len(each.message) < 20_000 for each in found)


@given(anything)
def test_anything_is_read(events: object) -> None:
    events_of(events, UID)
    events_of(
        [
            events,
            {"involvedObject": {"uid": UID}, "message": events, "lastTimestamp": events, "series": events},
        ],
        UID,
    )


@given(st.datetimes(min_value=datetime.datetime(1970, 1, 1), max_value=datetime.datetime(2200, 1, 1)))
def test_times_are_those_of_the_calendar(at: datetime.datetime) -> None:
    at = at.replace(tzinfo=datetime.timezone.utc)
    whole = at.replace(microsecond=0)
    assert seconds(whole.strftime("%Y-%m-%dT%H:%M:%SZ")) == whole.timestamp()
    assert seconds(at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")) == pytest.approx(at.timestamp(), abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-25",
        "2026-11-25T10:00:00+01:00",
        "2026-13-25T10:00:00Z",
        "2026-11-25T10:00:00.Z.",
        "²026-11-25T10:00:00Z",
        7,
        None,
    ],
)
def test_what_is_no_time_is_none(text: object) -> None:
    assert seconds(text) is None
