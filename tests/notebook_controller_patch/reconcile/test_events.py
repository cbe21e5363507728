"""The Events about a notebook: one for each change, as short as the API wants them."""

from __future__ import annotations

from datetime import datetime, timezone

from notebook_controller_patch.reconcile.events import (
    NotebookEvent,
    event_body,
    injector_away,
    injector_back,
)
from notebook_controller_patch.reconcile.records import notebook_record
from tests.notebook_controller_patch.reconcile.objects import admitted, notebook


def test_an_event_is_one_for_each_change() -> None:
    record = notebook_record(admitted())
    assert record is not None
    event = NotebookEvent("Normal", "BitfusionChangePending", "Something waits.")
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
    assert name != event_body(record, NotebookEvent("Normal", event.reason, "Else."))["metadata"]["name"]
    remade = notebook_record(notebook(uid="another"))
    assert remade is not None
    assert name != event_body(remade, event)["metadata"]["name"]


def test_an_event_is_as_short_as_the_api_wants_it() -> None:
    record = notebook_record(notebook("n" * 240))
    assert record is not None
    body = event_body(record, NotebookEvent("Warning", "BitfusionRequestRefused", "ä" * 3000), "i" * 300)
    assert len(body["metadata"]["name"]) <= 253
    assert len(body["message"]) == 1024
    assert len(body["reportingInstance"]) == 128


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
        "The pod injector of Bitfusion, which was away at 2026-11-23T08:15:00Z, answers again: this "
        "notebook's pod has been made."
    )
