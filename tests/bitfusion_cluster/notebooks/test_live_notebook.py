"""One Notebook asked for as it is now: what is asked, what counts as an answer, and how long it may take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import AnswerTooLarge, ApiFailure, Forbidden, NoAnswer
from bitfusion_cluster.notebooks import live_notebook
from bitfusion_cluster.notebooks.live_notebook import LiveNotebook
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from tests.bitfusion_cluster.fake_api import GET, FakeApi, Handler
from tests.bitfusion_cluster.faults import Fault, reset, stall, status
from tests.notebook_controller_patch.reconcile.objects import NOTEBOOKS, OS, notebook
from tests.support.machine import scaled
from tests.support.waiting import wait_until

PATH = "/apis/kubeflow.org/v1/namespaces/ann/notebooks/nb"


@pytest.fixture
def client(api: FakeApi) -> Iterator[KubernetesApi]:
    made = api.client()
    yield made
    made.close()


def ask(client: KubernetesApi, within: float = 10) -> NotebookRecord | None:
    return LiveNotebook(client)("ann", "nb", scaled(within))


def test_it_is_the_record_that_the_watch_would_make(api: FakeApi, client: KubernetesApi) -> None:
    made = api.put(NOTEBOOKS, notebook("nb", annotations={OS: "centos8", "foreign": "x"}))
    record = ask(client)
    assert record is not None
    assert (record.key, record.uid) == (("ann", "nb"), made["metadata"]["uid"])
    assert record.annotations == {OS: "centos8"}
    (request,) = api.requests
    assert (request.verb, request.path, request.query) == (GET, PATH, {})


def test_nothing_but_the_metadata_is_asked_for(api: FakeApi, client: KubernetesApi) -> None:
    """So that a Notebook of 1.5 MiB costs no more than another."""
    asked: list[str | None] = []

    def look(handler: Handler) -> None:
        asked.append(handler.headers.get("Accept"))
        handler.answer(200, notebook("nb", uid="u"))

    api.misbehave(look, GET)
    assert ask(client) is not None
    assert asked == ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"]


def test_that_there_is_none_is_an_answer(client: KubernetesApi) -> None:
    assert ask(client) is None


def test_a_path_that_is_not_served_is_none(api: FakeApi, client: KubernetesApi) -> None:
    """As an apiserver answers that has not read its CRDs yet: nothing is known of the Notebook."""

    def no_such_path(handler: Handler) -> None:
        handler.send_error(404, "page not found")

    api.misbehave(no_such_path, GET)
    with pytest.raises(ApiFailure, match="404"):
        ask(client)


def test_a_connection_that_was_closed_while_it_was_kept_is_no_failure(
    api: FakeApi, client: KubernetesApi
) -> None:
    api.put(NOTEBOOKS, notebook("nb"))
    assert ask(client) is not None
    api.misbehave(reset, GET)
    assert ask(client) is not None
    assert api.count(GET) == 3


def test_a_server_that_is_away_is_asked_twice_and_no_more(api: FakeApi, client: KubernetesApi) -> None:
    api.misbehave(reset, GET, times=5)
    with pytest.raises(NoAnswer):
        ask(client)
    assert api.count(GET) == 2


def drip(handler: Handler) -> None:
    """Headers at once, and then a byte now and then."""
    handler.begin_stream()
    for _ in range(600):
        if handler.server.api.ending.wait(0.05):
            return
        handler.send_piece(b" ")


@pytest.mark.parametrize(
    "fault", [pytest.param(stall, id="silent"), pytest.param(drip, id="a byte at a time")]
)
def test_its_thread_is_not_held_for_longer_than_that(
    api: FakeApi, client: KubernetesApi, fault: Fault
) -> None:
    api.misbehave(fault, GET, times=5)
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        LiveNotebook(client)("ann", "nb", 0.3)
    assert time.monotonic() - began < scaled(5)
    wait_until(lambda: api.count(GET))
    assert api.count(GET) == 1


def test_a_refusal_is_told(api: FakeApi, client: KubernetesApi) -> None:
    api.misbehave(status(403, "Forbidden", "no right"), GET)
    with pytest.raises(Forbidden):
        ask(client)


@pytest.mark.parametrize("body", [[], {}, {"metadata": {"name": "nb"}}, "text"])
def test_what_is_no_notebook_is_no_answer(api: FakeApi, client: KubernetesApi, body: Any) -> None:
    api.misbehave(lambda handler: handler.answer(200, body), GET)
    with pytest.raises(NoAnswer, match="the answer is not a Notebook, or was cut off"):
        ask(client)


def test_an_answer_beyond_its_bound_is_not_read_to_its_end(
    api: FakeApi, client: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_notebook, "LARGEST", 1000)
    api.put(NOTEBOOKS, notebook("nb", annotations={"foreign": "x" * 2000}))
    with pytest.raises(AnswerTooLarge, match="more than 1000 bytes"):
        ask(client)
    assert api.count(GET) == 1
