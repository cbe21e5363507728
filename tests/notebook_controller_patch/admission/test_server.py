"""The HTTPS server of both webhooks, over real connections."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import subprocess
import sys
import threading
from typing import Any

import pytest

from bitfusion_cluster.notebooks import owners
from bitfusion_cluster.program import http_service
from bitfusion_cluster.program.http_service import LARGEST_BODY
from bitfusion_cluster.webhooks.review import Verdict
from notebook_controller_patch.admission import webhooks as server
from tests.bitfusion_cluster.log_fields import fields
from tests.notebook_controller_patch.admission.live_server import HOST, Client, Live, Record, head, serving
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    DEFAULTS,
    OURS,
    OWNER_UID,
    REQUEST,
    UID,
    body,
    notebook,
    review,
    statefulset,
)
from tests.support.machine import scaled

NOTEBOOKS, STATEFULSETS = "/admit/notebooks?timeout=5s", "/admit/statefulsets?timeout=5s"
REVIEWS = "bitfusion_admission_reviews_total"
BAD = "bitfusion_admission_bad_requests_total"


def patched(response: Any) -> dict[str, Any]:
    return {
        operation["path"]: operation["value"] for operation in json.loads(base64.b64decode(response["patch"]))
    }


def run(live: Live, scenario: Any, **limits: Any) -> Any:
    """Run ``scenario(client)`` against a started server; its connection is closed at the end."""

    async def main() -> Any:
        async with serving(live):
            client = await live.client()
            try:
                return await asyncio.wait_for(scenario(client), scaled(30))
            finally:
                await client.close()

    return asyncio.run(main())


def test_both_webhooks_over_one_connection(live: Live) -> None:
    live.notebooks["ann", "nb"] = notebook(annotations=DEFAULTS)

    async def scenario(client: Client) -> Any:
        first = await client.post(NOTEBOOKS, review(notebook({AMOUNT: "2"})))
        second = await client.post(STATEFULSETS, review(statefulset({AMOUNT: "2"})))
        third = await client.post(
            STATEFULSETS, review(statefulset({AMOUNT: "2"}), statefulset({AMOUNT: "2"}))
        )
        refused = await client.post(NOTEBOOKS, review(notebook({AMOUNT: "0"})))
        return first, second, third, refused

    first, second, third, refused = run(live, scenario)
    assert [one.status for one in (first, second, third, refused)] == [200] * 4
    assert first.headers["Content-Type"] == "application/json"
    assert json.loads(first.body)["apiVersion"] == "admission.k8s.io/v1"
    assert first.response["uid"] == UID
    assert patched(first.response)["/metadata/labels/bitfusion.io~1requested"] == "true"
    assert patched(second.response)["/spec/template/metadata/annotations/bitfusion-client~1os"] == "ubuntu22"
    assert third.response == {"uid": UID, "allowed": True}
    assert refused.response["allowed"] is False
    assert refused.response["status"]["code"] == 422
    assert live.value(REVIEWS, webhook="notebooks", outcome="patched") == 1
    assert live.value(REVIEWS, webhook="notebooks", outcome="refused") == 1
    assert live.value(REVIEWS, webhook="statefulsets", outcome="patched") == 1
    assert live.value(REVIEWS, webhook="statefulsets", outcome="unchanged") == 1
    assert live.value("bitfusion_admission_lookups_total", result="live") == 1
    assert live.value("bitfusion_admission_duration_seconds_count", webhook="notebooks") == 2


OLD, NEW = {**DEFAULTS, REQUEST: "-n 1"}, {**DEFAULTS, REQUEST: "-n 2"}
ONE, TWO = {AMOUNT: "1"}, {AMOUNT: "2"}
SIZE = "/spec/template/metadata/annotations/bitfusion.io~1request"


@pytest.mark.parametrize(
    ("new", "old", "looked_up"),
    [
        pytest.param(statefulset(ONE, {}), None, True, id="created"),
        pytest.param(statefulset(ONE, {}, replicas=None), None, True, id="created, replicas defaulted"),
        pytest.param(statefulset(ONE, {}), statefulset(ONE, {}, replicas=0), True, id="started"),
        pytest.param(statefulset(TWO, {}), statefulset(ONE, {}), True, id="changed sizes"),
        pytest.param(statefulset(ONE, {}, replicas=0), None, False, id="created without a pod"),
        pytest.param(statefulset(ONE, {}, replicas=0), statefulset(ONE, {}), False, id="stopped"),
        pytest.param(
            statefulset(TWO, {}, replicas=0), statefulset(ONE, {}, replicas=0), False, id="while stopped"
        ),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_write_that_starts_a_pod_takes_the_notebook_as_it_is_now(
    live: Live, new: Any, old: Any, looked_up: bool, dry_run: bool
) -> None:
    """An edit that is followed at once by a start: the watch has not brought it yet."""
    live.cache["ann", "nb"] = Record(OWNER_UID, OLD)
    live.notebooks["ann", "nb"] = notebook(annotations=NEW)

    async def scenario(client: Client) -> Any:
        return await client.post(STATEFULSETS, review(new, old, dryRun=dry_run))

    assert patched(run(live, scenario).response)[SIZE] == ("-n 2" if looked_up else "-n 1")
    result = "live" if looked_up else "cached"
    assert live.value("bitfusion_admission_lookups_total", result=result) == 1
    assert live.unsure == []


def test_what_runs_and_keeps_its_sizes_is_looked_up_nowhere(live: Live) -> None:
    async def scenario(client: Client) -> Any:
        running = await client.post(STATEFULSETS, review(statefulset(ONE, NEW), statefulset(ONE, OLD)))
        own = await client.post(STATEFULSETS, review(statefulset(ONE), username=OURS))
        return running, own

    running, own = run(live, scenario)
    assert patched(running.response)[SIZE] == "-n 1"
    assert own.response == {"uid": UID, "allowed": True}
    for result in ("cached", "live", "gone", "failed"):
        assert live.value("bitfusion_admission_lookups_total", result=result) == 0


def test_a_notebook_that_the_cache_misses_is_looked_up(live: Live) -> None:
    live.notebooks["ann", "nb"] = notebook(annotations=DEFAULTS)

    async def scenario(client: Client) -> Any:
        return await client.post(STATEFULSETS, review(statefulset(TWO, replicas=0)))

    assert patched(run(live, scenario).response)["/spec/template/metadata/annotations/bitfusion-client~1os"]
    assert live.value("bitfusion_admission_lookups_total", result="live") == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda namespace, name: {}, id="there is none"),
        pytest.param(
            lambda namespace, name: (
                notebook(name="nb") | {"metadata": {"namespace": "ann", "name": "nb", "uid": "another"}}
            ),
            id="it was made anew",
        ),
    ],
)
def test_a_notebook_that_is_gone_decides_nothing(
    live: Live, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    live.cache["ann", "nb"] = Record(OWNER_UID, OLD)
    monkeypatch.setattr(live, "fetch", answer)

    async def scenario(client: Client) -> Any:
        return await client.post(STATEFULSETS, review(statefulset(ONE, {"bitfusion-client/os": "x"})))

    assert run(live, scenario).response == {"uid": UID, "allowed": True}
    assert live.value("bitfusion_admission_lookups_total", result="gone") == 1
    assert live.unsure == []


@pytest.mark.parametrize("fault", ["refused", "silent"])
def test_an_apiserver_that_cannot_say_leaves_it_to_the_cache_which_removes_nothing(
    live: Live, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    live.cache["ann", "nb"] = Record(OWNER_UID, {REQUEST: "-n 1"})
    over = threading.Event()
    if fault == "silent":
        monkeypatch.setattr(owners, "LONGEST_LOOKUP", 0.5)

    def fails(namespace: str, name: str) -> Any:
        if fault == "silent":
            over.wait(scaled(20))
        raise ConnectionError("refused")

    monkeypatch.setattr(live, "fetch", fails)

    async def scenario(client: Client) -> Any:
        started = review(statefulset(ONE, {**DEFAULTS, "foreign": "x"}), statefulset(ONE, replicas=0))
        try:
            return await client.post(STATEFULSETS, started)
        finally:
            over.set()

    response = run(live, scenario).response
    assert json.loads(base64.b64decode(response["patch"])) == [{"op": "add", "path": SIZE, "value": "-n 1"}]
    reason = "timeout" if fault == "silent" else "no_answer"
    failures = "bitfusion_admission_lookup_failures_total"
    assert live.value(failures, reason=reason, decided_by="cache") == 1
    assert live.unsure == ["nb"]


def test_a_notebook_that_is_to_be_left_alone_gives_its_statefulset_nothing(live: Live) -> None:
    live.notebooks["ann", "nb"] = notebook(annotations=DEFAULTS, labels={"bitfusion.io/admission": "ignore"})

    async def scenario(client: Client) -> Any:
        return await client.post(
            STATEFULSETS, review(statefulset({AMOUNT: "2"}, {"bitfusion-client/os": "x"}))
        )

    assert run(live, scenario).response == {"uid": UID, "allowed": True}


@pytest.mark.parametrize(
    ("posted", "message"),
    [
        (b"", "the body is not JSON: Input is a zero-length, empty document: line 1 column 1 (char 0)"),
        (b"\xff\xfe", "the body is not UTF-8"),
        (b"[" * 200_000, "the body is nested too deeply"),
        (b"[]", "the body is not an AdmissionReview: it must be a JSON object"),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}',
            "the body must be admission.k8s.io/v1 AdmissionReview, but is admission.k8s.io/v1beta1 "
            "AdmissionReview",
        ),
        (
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {}}',
            "the AdmissionReview's request has no uid",
        ),
    ],
)
@pytest.mark.parametrize("path", [NOTEBOOKS, STATEFULSETS])
def test_what_is_no_review_gets_one_clear_line_and_the_connection_stays(
    live: Live, caplog: pytest.LogCaptureFixture, path: Any, posted: bytes, message: str
) -> None:
    async def scenario(client: Client) -> Any:
        return await client.post(path, posted), await client.post(path, review(notebook()))

    bad, good = run(live, scenario)
    assert (bad.status, bad.text) == (400, message + "\n")
    assert good.response["allowed"] is True
    assert live.value(BAD, status="400") == 1
    assert not caplog.records


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "message"),
    [
        ("POST", "/admit/pods", {}, 404, "there is nothing at this path"),
        ("POST", "/", {}, 404, "there is nothing at this path"),
        ("GET", NOTEBOOKS, {}, 405, "only POST is answered here"),
        ("PUT", STATEFULSETS, {}, 405, "only POST is answered here"),
        ("POST", "/healthz", {}, 405, "only GET is answered here"),
        ("POST", NOTEBOOKS, {}, 415, "the content type must be application/json"),
        ("POST", NOTEBOOKS, {"Content-Type": "text/xml"}, 415, "the content type must be application/json"),
    ],
)
def test_requests_for_something_else(
    live: Live, method: str, path: Any, headers: dict[str, Any], status: int, message: str
) -> None:
    async def scenario(client: Client) -> Any:
        first = await client.send(method, path, b"x" * 5000, headers)
        return first, await client.send("GET", "/healthz")

    answer, after = run(live, scenario)
    assert (answer.status, answer.text) == (status, message + "\n")
    assert after.status == 200
    assert live.value(BAD, status=str(status)) == 1


def test_the_content_type_may_name_a_charset(live: Live) -> None:
    async def scenario(client: Client) -> Any:
        content = json.dumps(review(notebook())).encode()
        return await client.send(
            "POST", NOTEBOOKS, content, {"content-type": "Application/JSON; charset=utf-8"}
        )

    assert run(live, scenario).status == 200


def test_a_large_review_is_answered(live: Live) -> None:
    data = review(statefulset(), statefulset())
    data["request"]["object"]["metadata"]["annotations"] = {"large": "x" * (LARGEST_BODY - 10_000)}

    async def scenario(client: Client) -> Any:
        return await client.post(STATEFULSETS, data)

    assert run(live, scenario).response["allowed"] is True


def test_a_body_that_is_too_large_is_told_so(live: Live) -> None:
    async def scenario(client: Client) -> Any:
        answer = await client.post(NOTEBOOKS, b"x" * (LARGEST_BODY + 1))
        return answer, await client.send("GET", "/healthz")

    answer, after = run(live, scenario)
    assert (answer.status, answer.text) == (413, "the body is larger than 7 MiB\n")
    assert after.status == 200
    assert live.value(BAD, status="413") == 1


def test_a_body_of_unknown_length_that_is_too_large_is_told_so(live: Live) -> None:
    headers = {"Host": "a", "Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"

    async def scenario(client: Client) -> Any:
        await client.write(head("POST", NOTEBOOKS, headers))
        for _ in range(8):
            await client.write(chunk)
        await client.write(b"0\r\n\r\n")
        return await client.read()

    answer = run(live, scenario)
    assert (answer.status, answer.text) == (413, "the body is larger than 7 MiB\n")


def test_a_body_without_end_is_told_so_and_cut(live: Live) -> None:
    headers = {"Host": "a", "Content-Type": "application/json", "Content-Length": str(10**12)}

    async def scenario(client: Client) -> Any:
        await client.write(head("POST", NOTEBOOKS, headers))
        return await client.read(), await client.ended()

    answer, ended = run(live, scenario)
    assert (answer.status, answer.text) == (413, "the body is larger than 7 MiB\n")
    assert ended


def test_a_request_that_does_not_arrive_is_not_waited_for(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_service, "REQUEST_SECONDS", 0.2)
    headers = {"Host": "a", "Content-Type": "application/json", "Content-Length": "100"}

    async def scenario(client: Client) -> Any:
        await client.write(head("POST", NOTEBOOKS, headers) + b"{")
        return await client.read(), await client.ended()

    answer, ended = run(live, scenario)
    assert (answer.status, answer.text) == (408, "the request took longer than 0.2 s\n")
    assert ended
    assert live.value(BAD, status="408") == 1
    assert live.value("bitfusion_admission_in_flight") == 0


def test_clients_that_hang_up_or_speak_nonsense_leave_nothing(live: Live) -> None:
    headers = {"Host": "a", "Content-Type": "application/json", "Content-Length": "100"}

    async def scenario(client: Client) -> Any:
        for data in (b"", b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", head("POST", NOTEBOOKS, headers) + b"{"):
            rude = await live.client()
            await rude.write(data)
            await rude.close()
        while live.value("bitfusion_admission_in_flight"):
            await asyncio.sleep(0.01)
        return await client.send("GET", "/healthz")

    assert run(live, scenario).status == 200


FAILURE = "Bitfusion's admission failed on this object and left it unchanged; the cause is in its log"


def broken(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("function", "path", "object_"),
    [
        ("admit_notebook", NOTEBOOKS, notebook({AMOUNT: "0"})),
        ("needs_owner", STATEFULSETS, statefulset({AMOUNT: "1"})),
        ("admit_statefulset", STATEFULSETS, statefulset({AMOUNT: "1"})),
    ],
)
def test_a_bug_of_ours_lets_the_object_through(
    live: Live,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    path: Any,
    object_: Any,
) -> None:
    monkeypatch.setattr(server, function, broken)

    async def scenario(client: Client) -> Any:
        return await client.post(path, review(object_))

    with caplog.at_level(logging.ERROR):
        answer = run(live, scenario)
    assert answer.status == 200
    assert answer.response == {"uid": UID, "allowed": True, "warnings": [FAILURE]}
    webhook = "notebooks" if path == NOTEBOOKS else "statefulsets"
    assert live.value(REVIEWS, webhook=webhook, outcome="failed") == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.message == "review failed, object let through"
    assert fields(record, "namespace", "uid", "webhook") == ("ann", UID, webhook)
    assert "RuntimeError: a bug" in logging.Formatter().format(record)


def test_a_verdict_that_cannot_be_told_lets_the_object_through(
    live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    unanswerable = Verdict(patch=[{"op": "add", "path": "/a", "value": object()}])
    monkeypatch.setattr(server, "admit_notebook", lambda review, rules: unanswerable)

    async def scenario(client: Client) -> Any:
        return await client.post(NOTEBOOKS, review(notebook()))

    assert run(live, scenario).response == {"uid": UID, "allowed": True, "warnings": [FAILURE]}


def test_rules_that_cannot_be_read_let_the_object_through(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    live.rules = None  # type: ignore[assignment]  # what a bug could make of it

    async def scenario(client: Client) -> Any:
        return await client.post(NOTEBOOKS, review(notebook({AMOUNT: "1"})))

    assert run(live, scenario).response["warnings"] == [FAILURE]


def test_one_line_a_decision(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Client) -> None:
        await client.post(NOTEBOOKS, review(notebook({AMOUNT: "2"}), dryRun=True))
        await client.post(NOTEBOOKS, review(notebook({AMOUNT: "0"})))
        await client.post(NOTEBOOKS, review(notebook()))

    with caplog.at_level(logging.INFO):
        run(live, scenario)
    patched_, refused = (record for record in caplog.records if record.message == "review answered")
    assert fields(patched_, "outcome", "dry_run", "object", "operation") == (
        "patched",
        True,
        "nb",
        "CREATE",
    )
    assert "/metadata/labels/bitfusion.io~1requested" in fields(patched_, "keys")[0]
    assert fields(refused, "outcome", "dry_run") == ("refused", False)
    assert fields(refused, "reason")[0].startswith('Invalid value "0" for bitfusion.io/gpu-amount')


def test_health_and_readiness_but_no_metrics(live: Live) -> None:
    """The port is open to the whole cluster, and the metrics cost time to make."""
    live.ready = {"certificate": True, "notebooks": False}

    async def scenario(client: Client) -> Any:
        healthy, not_ready = await client.send("GET", "/healthz"), await client.send("GET", "/readyz")
        live.ready["notebooks"] = True
        return healthy, not_ready, await client.send("GET", "/readyz"), await client.send("GET", "/metrics")

    healthy, not_ready, ready, metrics = run(live, scenario)
    assert (healthy.status, healthy.text) == (200, "ok\n")
    assert (not_ready.status, not_ready.text) == (503, "not ready: notebooks\n")
    assert (ready.status, ready.text) == (200, "ok\n")
    assert (metrics.status, metrics.text) == (404, "there is nothing at this path\n")
    assert live.value("bitfusion_admission_reviews_total", webhook="notebooks", outcome="failed") == 0
    assert live.value("bitfusion_admission_in_flight") == 0


def test_what_was_asked_before_the_end_is_answered(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go, asked = threading.Event(), threading.Event()

    def slow(namespace: Any, name: Any) -> Any:
        asked.set()
        let_go.wait(scaled(5))
        return notebook(annotations=DEFAULTS)

    monkeypatch.setattr(live, "fetch", slow)

    async def scenario(client: Client) -> Any:
        idle = await live.client()
        assert (await idle.send("GET", "/healthz")).status == 200
        answering = asyncio.ensure_future(client.post(STATEFULSETS, review(statefulset({AMOUNT: "2"}))))
        await asyncio.to_thread(asked.wait, scaled(5))
        stopping = asyncio.ensure_future(live.server.stop(scaled(5)))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        with pytest.raises(ConnectionError):
            await live.client()
        let_go.set()
        answer = await answering
        await stopping
        closed = await idle.ended()
        await idle.close()
        return answer, closed

    answer, closed = run(live, scenario)
    assert patched(answer.response)
    assert answer.headers["Connection"] == "close"
    assert closed


def test_what_has_been_sent_but_not_read_is_answered_too(live: Live) -> None:
    async def scenario(client: Client) -> Any:
        content = body(review(notebook({AMOUNT: "1"})))
        headers = {"Host": "a", "Content-Type": "application/json", "Content-Length": str(len(content))}
        client.writer.write(head("POST", NOTEBOOKS, headers) + content)
        await live.server.stop(scaled(5))
        return await client.read()

    assert run(live, scenario).response["allowed"] is True


def test_the_end_does_not_wait_longer_than_it_was_given(live: Live) -> None:
    headers = {"Host": "a", "Content-Type": "application/json", "Content-Length": "100"}

    async def scenario(client: Client) -> Any:
        await client.write(head("POST", NOTEBOOKS, headers))
        while not live.value("bitfusion_admission_in_flight"):
            await asyncio.sleep(0.01)
        await asyncio.wait_for(live.server.stop(0.1), scaled(10))
        return await client.ended()

    assert run(live, scenario)
    assert live.value("bitfusion_admission_in_flight") == 0


def test_while_it_drains_it_serves_and_asks_for_other_connections(live: Live) -> None:
    async def scenario(client: Client) -> Any:
        before = await client.post(NOTEBOOKS, review(notebook()))
        live.server.drain()
        other = await live.client()
        answers = [await one.post(NOTEBOOKS, review(notebook())) for one in (client, other)]
        await other.close()
        return before, answers

    before, answers = run(live, scenario)
    assert "Connection" not in before.headers
    assert [answer.headers["Connection"] for answer in answers] == ["close", "close"]
    assert all(answer.response["allowed"] for answer in answers)


def test_old_versions_of_tls_are_refused(live: Live) -> None:
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        live.context.minimum_version = ssl.TLSVersion.TLSv1
    old = ssl.create_default_context()
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match=r"TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1

    async def scenario(client: Client) -> Any:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(HOST, live.port, ssl=old)
        return client.writer.get_extra_info("ssl_object").version()

    assert run(live, scenario) in ("TLSv1.2", "TLSv1.3")
    assert live.context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_admission_does_without_the_kubernetes_client() -> None:
    code = "import sys, notebook_controller_patch.admission.webhooks; print('kubernetes' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=scaled(50)
    )
    assert done.stdout == "False\n"


def test_a_port_in_use_is_an_error(live: Live) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(OSError, match="Address already in use"):
            await live.server.start(HOST, live.port)

    run(live, scenario)
