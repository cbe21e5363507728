"""Requests to the Kubernetes API: verbs, time limits, kept connections, many threads; over real sockets."""

from __future__ import annotations

import threading

import pytest

from bitfusion_cluster.api import client as client_module
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import (
    Conflict,
    NoAnswer,
    NotFound,
    TooManyRequests,
)
from tests.bitfusion_cluster.fake_api import FakeApi, Handler, fake_api
from tests.bitfusion_cluster.faults import Fault, reset, stall, status
from tests.notebook_controller_patch.reconcile.objects import NOTEBOOKS, notebook
from tests.support.apiserver_answers import PATCH_NOT_APPLIED
from tests.support.machine import scaled
from tests.support.waiting import wait_until

PATH = "/apis/kubeflow.org/v1/namespaces/ann/notebooks"
WATCH_QUERY: dict[str, str | int | bool] = {"watch": True, "timeoutSeconds": 60, "resourceVersion": "0"}
SHORT = (10.0, 0.5)


def test_an_object_is_made_read_patched_merged_and_deleted(server: FakeApi, api: KubernetesApi) -> None:
    made = api.create(PATH, notebook("nb"))
    assert api.get(f"{PATH}/nb") == made
    operations = [
        {"op": "test", "path": "/metadata/name", "value": "nb"},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"},
    ]
    assert api.patch(f"{PATH}/nb", operations)["metadata"]["annotations"]["a/b"] == "1"
    merged = api.merge(f"{PATH}/nb", {"metadata": {"annotations": {"a/b": None}}})
    assert "a/b" not in merged["metadata"]["annotations"]
    with pytest.raises(Conflict):
        api.delete(f"{PATH}/nb", {"preconditions": {"uid": "another"}})
    api.delete(f"{PATH}/nb", {"preconditions": {"uid": made["metadata"]["uid"]}})
    with pytest.raises(NotFound):
        api.get(f"{PATH}/nb")


def test_a_test_operation_that_fails_is_a_conflict(server: FakeApi, api: KubernetesApi) -> None:
    server.put(NOTEBOOKS, notebook("nb"))
    with pytest.raises(Conflict, match=PATCH_NOT_APPLIED):
        api.patch(f"{PATH}/nb", [{"op": "test", "path": "/metadata/name", "value": "other"}])


def test_a_query_is_written_as_the_api_wants_it(server: FakeApi, api: KubernetesApi) -> None:
    api.get(PATH, {"limit": 5, "watchX": True, "labelSelector": "a in (b, c)"})
    assert server.requests[0].query == {"limit": "5", "watchX": "true", "labelSelector": "a in (b, c)"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(reset, id="RST"),
        pytest.param(stall, id="silence"),
        pytest.param(lambda handler: handler.answer(200, [1]), id="no object"),
    ],
)
def test_no_answer_is_an_error_of_its_own_and_asked_for_once(
    server: FakeApi, api: KubernetesApi, fault: Fault
) -> None:
    server.misbehave(fault, times=5)
    with pytest.raises(NoAnswer) as caught:
        api.get(PATH, timeout=SHORT)
    wait_until(lambda: server.requests)
    assert len(server.requests) == 1, "nothing is retried behind our back"
    assert caught.value.user_message.startswith("The Kubernetes API did not answer.\n")


def test_a_429_is_told_at_once(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(status(429, Retry_After="3600"))  # for which the transport must not sleep
    with pytest.raises(TooManyRequests):
        api.get(PATH)


def test_an_answer_that_is_cut_off_is_no_answer(server: FakeApi, api: KubernetesApi) -> None:
    def half(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"items": [')
        handler.wfile.flush()
        reset(handler)

    server.misbehave(half)
    with pytest.raises(NoAnswer):
        api.get(PATH)


def test_an_answer_that_drips_is_given_up(
    server: FakeApi, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LONGEST_ANSWER_S", 0.5)

    def drip(handler: Handler) -> None:
        handler.begin_stream()
        while not handler.server.api.ending.wait(0.05):
            handler.send_piece(b" ")

    server.misbehave(drip)
    with pytest.raises(NoAnswer, match=r"not complete after 0\.5 s"):
        api.get(PATH)


def test_a_refused_connection_is_no_answer() -> None:
    with fake_api() as gone:
        client = gone.client()
    with pytest.raises(NoAnswer, match="refused"):
        client.get(PATH)


def test_connections_are_kept(server: FakeApi, api: KubernetesApi) -> None:
    ports: set[int] = set()

    def note(handler: Handler) -> None:
        ports.add(handler.client_address[1])
        handler.answer(200, {})

    server.misbehave(note, times=5)
    for _ in range(5):
        api.get(PATH)
    assert len(ports) == 1


def test_many_threads_share_one_client(server: FakeApi, api: KubernetesApi) -> None:
    server.put(NOTEBOOKS, notebook("nb"))
    failed: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(20):
                api.get(f"{PATH}/nb")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scaled(20))
    assert not failed
    assert len(server.requests) == 160


def test_the_default_time_limits() -> None:
    assert client_module.TIMEOUT == (3.0, 10.0)
