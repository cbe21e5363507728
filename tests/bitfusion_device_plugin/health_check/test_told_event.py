"""The Event about a run, beside an API server that misbehaves: one for each result, renewed and counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bitfusion_cluster.api.errors import Forbidden, ServerError
from bitfusion_cluster.api.events import event_count
from bitfusion_device_plugin.health_check import told_event
from bitfusion_device_plugin.health_check.told_event import event_body, tell
from bitfusion_device_plugin.health_check.verdict import FATAL, PASSED, Verdict
from tests.bitfusion_cluster.fake_api import GET, PATCH, POST, FakeApi, Handler
from tests.bitfusion_cluster.faults import reset, status

EVENTS, CRON_JOBS = "/api/v1/events", "/apis/batch/v1/cronjobs"
NAME = "bitfusion-health"
GOOD, BAD = Verdict(PASSED, "All is well: 2 checks"), Verdict(FATAL, "1 of 2 checks is FATAL: a:1: x")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setattr(told_event, "PAUSE_S", 0.01)
    server = FakeApi()
    server.put(CRON_JOBS, {"metadata": {"namespace": "checks", "name": NAME, "uid": "u1"}})
    yield server
    server.close()


def told(api: FakeApi, *runs: tuple[Verdict, str]) -> dict[str, dict[str, Any]]:
    """What is there after these runs, by reason; each is a verdict and its pod."""
    client = api.client()
    try:
        for verdict, pod in runs:
            tell(client, "checks", NAME, verdict, pod)
    finally:
        client.close()
    events = api.objects(EVENTS)
    by_reason = {one["reason"]: one for one in events}
    assert len(by_reason) == len(events)
    return by_reason


def test_each_result_has_one_event_that_is_renewed_and_counted(api: FakeApi) -> None:
    events = told(api, (GOOD, "check-1"), (BAD, "check-2"), (GOOD, "check-3"), (GOOD, "check-4"))
    good, bad = events["BitfusionHealthPassed"], events["BitfusionHealthFatal"]
    assert (good["type"], good["count"], good["reportingInstance"]) == ("Normal", 3, "check-4")
    assert good["message"] == "All is well: 2 checks. The report: kubectl logs check-4 --namespace checks"
    assert (bad["type"], bad["count"], bad["involvedObject"]["uid"]) == ("Warning", 1, "u1")
    assert good["firstTimestamp"] <= good["lastTimestamp"]


def test_a_server_that_comes_back_is_asked_again(api: FakeApi) -> None:
    api.misbehave(reset, GET)
    api.misbehave(status(503, "ServiceUnavailable"), POST)
    assert told(api, (GOOD, "check-1"))["BitfusionHealthPassed"]["count"] == 1
    assert (api.count(GET), api.count(POST)) == (3, 2)


def test_a_server_that_stays_away_is_asked_a_few_times(api: FakeApi) -> None:
    api.misbehave(status(503, "ServiceUnavailable"), times=99)
    with pytest.raises(ServerError):
        told(api, (GOOD, "check-1"))
    assert api.count() == told_event.MOST_TRIES


def test_what_is_forbidden_is_tried_once(api: FakeApi) -> None:
    api.misbehave(status(403, "Forbidden"), POST, times=99)
    with pytest.raises(Forbidden):
        told(api, (GOOD, "check-1"))
    assert api.count(POST) == 1


def test_an_event_without_a_look_at_the_cron_job_has_no_uid(api: FakeApi) -> None:
    api.misbehave(status(403, "Forbidden"), GET)
    assert told(api, (GOOD, "check-1"))["BitfusionHealthPassed"]["involvedObject"]["uid"] == ""


def test_an_event_whose_hour_ends_in_between_is_made_anew(api: FakeApi) -> None:
    (event,) = told(api, (GOOD, "check-1")).values()

    def ends(handler: Handler) -> None:
        api.remove(EVENTS, "checks", event["metadata"]["name"])
        status(404, "NotFound")(handler)

    api.misbehave(ends, PATCH)
    (renewed,) = told(api, (GOOD, "check-2")).values()
    assert (renewed["count"], renewed["reportingInstance"]) == (1, "check-2")


def test_a_message_fits_and_ends_with_where_the_report_is() -> None:
    body = event_body("checks", NAME, "u1", Verdict(FATAL, "x" * 5000), "check-1")
    assert len(body["message"]) == 1024
    assert body["message"].endswith("x…. The report: kubectl logs check-1 --namespace checks")


@pytest.mark.parametrize(
    ("answered", "count"), [({"count": 4}, 5), ({}, 2), ({"count": None}, 2), ({"count": "7"}, 2)]
)
def test_the_count_goes_on_from_the_servers(answered: dict[str, Any], count: int) -> None:
    assert event_count(answered) == {"count": count}
