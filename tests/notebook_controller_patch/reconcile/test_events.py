"""The Events about a notebook: one for each change, as short as the API wants them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from bitfusion_cluster.api.events import Said
from bitfusion_cluster.notebooks.notebook_record import notebook_record
from notebook_controller_patch.reconcile.events import (
    event_body,
    injector_away,
    injector_back,
    quota_exceeded,
)
from notebook_controller_patch.reconcile.quota_refusals import QuotaRefusal
from tests.notebook_controller_patch.reconcile.objects import admitted, notebook


def test_an_event_is_one_for_each_change() -> None:
    record = notebook_record(admitted())
    assert record is not None
    event = Said("Normal", "BitfusionChangePending", "Something waits.")
    body = event_body(record, event, "pod-1")
    assert body["involvedObject"] == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "namespace": "ann",
        "name": "nb",
        "uid": "uid-of-nb",
    }
    assert (body["type"], body["reason"], body["message"]) == (event.type, event.reason, event.message)
    name = body["metadata"]["name"]
    assert name == event_body(record, event, "pod-2")["metadata"]["name"]
    assert name.startswith("nb.")
    assert name != event_body(record, Said("Normal", event.reason, "Else."))["metadata"]["name"]
    remade = notebook_record(notebook(uid="another"))
    assert remade is not None
    assert name != event_body(remade, event)["metadata"]["name"]


def test_an_event_is_as_short_as_the_api_wants_it() -> None:
    record = notebook_record(notebook("n" * 240))
    assert record is not None
    body = event_body(record, Said("Warning", "BitfusionRequestRefused", "ä" * 3000), "i" * 300)
    assert len(body["metadata"]["name"]) <= 253
    assert len(body["message"]) == 1024
    assert len(body["reportingInstance"]) == 128


@pytest.mark.parametrize(
    ("requested", "used", "limited", "words"),
    [
        (
            *(50, 150, 150),
            "namespace ann may have 150 units (1.5 GPUs) of Bitfusion at a time, 150 are taken, and this "
            "notebook asks for 50. It starts automatically once enough are free. What to do: stop "
            "another notebook, or ask your administrator for more units (quota gpus).",
        ),
        (
            *(200, 50, 100),
            "namespace ann may have 100 units (1 GPU) of Bitfusion at a time, but this notebook asks for "
            "200. What to do: stop it, choose a smaller size and start it again, or ask your "
            "administrator for more units (quota gpus).",
        ),
        (
            *(50, 0, 0),
            "namespace ann may not use units of Bitfusion, but this notebook asks for 50. What to do: "
            "ask your administrator for units (quota gpus).",
        ),
    ],
)
def test_a_quota_that_is_used_up_is_told_in_plain_words(
    requested: int, used: int, limited: int, words: str
) -> None:
    event = quota_exceeded("ann", QuotaRefusal("gpus", requested, used, limited, "2026-11-25T03:00:01Z"))
    assert (event.type, event.reason) == ("Warning", "BitfusionQuotaExceeded")
    assert event.message == f"This notebook cannot start: {words}"


def test_the_same_words_on_another_occasion_are_another_event() -> None:
    record = notebook_record(admitted())
    assert record is not None
    said = [Said("Warning", "Why", "No.", occasion) for occasion in ("", "", "one", "one", "two")]
    names = [event_body(record, one)["metadata"]["name"] for one in said]
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert len(set(names)) == 3


def test_an_absent_injector_is_told_in_plain_words() -> None:
    since = datetime(2026, 11, 23, 8, 15, tzinfo=timezone.utc)
    away, back = injector_away(since), injector_back(since)
    assert (away.type, away.reason) == ("Warning", "BitfusionInjectorAway")
    assert away.message == (
        "This notebook cannot start yet: it asks for GPUs of Bitfusion, and the program that puts the client "
        "into its pod, the pod injector, does not answer the cluster (noticed at 2026-11-23T08:15:00Z). It "
        "starts by itself within seconds once the injector is back. Administrators: this is the webhook "
        "pods.bitfusion.io."
    )
    assert (back.type, back.reason) == ("Normal", "BitfusionInjectorBack")
    assert back.message == (
        "The pod injector of Bitfusion, which was away at 2026-11-23T08:15:00Z, responds again: this "
        "notebook's pod has been created."
    )
