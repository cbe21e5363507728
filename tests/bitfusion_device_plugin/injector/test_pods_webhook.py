"""What the injector's log says of pods: a refusal with its reason; an injected pod says it itself."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import ssl
from datetime import datetime, timezone
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.certificates.authority import issue, new_authority
from bitfusion_cluster.certificates.serving import ServingCertificate
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.webhooks.review import read_review
from bitfusion_cluster.webhooks.review_server import ReviewServer
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS
from bitfusion_device_plugin.injector.pods_webhook import PodsWebhook, notebook_of
from tests.support.machine import scaled

HOST = "127.0.0.1"


def review_of(limits: dict[str, str]) -> bytes:
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
    request = {
        "uid": "1",
        "operation": "CREATE",
        "kind": {"kind": "Pod"},
        "namespace": "ann",
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def post(port: int, body: bytes) -> dict[str, Any]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # made a moment ago; certificates have tests of their own
    connection = http.client.HTTPSConnection(HOST, port, timeout=scaled(30), context=context)
    try:
        connection.request("POST", "/admit/pods", body, {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())["response"]
    finally:
        connection.close()
    return answer


SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}


@pytest.mark.parametrize(
    ("owners", "looked_up"),
    [
        ([{**SET, "name": "a-long-name"}], "a-long-name"),
        ([{**SET, "name": "nb-x7k2p"}], "a-long-name"),  # Open Data Hub's, for long names
        ([{"kind": "Job", "name": "x"}, {**SET, "name": "nb-x7k2p"}], "a-long-name"),
        ([{"apiVersion": "batch/v1", "kind": "Job", "name": "a-long-name"}], ""),
        ([], ""),
        (None, ""),
        ("odd", ""),
    ],
)
def test_the_notebook_of_a_pod_is_found_whatever_its_statefulset_is_called(
    owners: object, looked_up: str
) -> None:
    labels = {"notebook-name": "a-long-name", "statefulset": "a-long-name"}
    limits = {"bitfusion.io/gpu-50": "1"}
    pod = {
        "metadata": {"name": "nb-x7k2p-0", "labels": labels, "ownerReferences": owners},
        "spec": {"containers": [{"name": "a-long-name", "resources": {"limits": limits}}]},
    }
    request = {"uid": "1", "operation": "CREATE", "kind": {"kind": "Pod"}, "namespace": "ann", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    assert notebook_of(read_review(review)) == looked_up


def nobody(namespace: str, name: str, within: float) -> None:
    raise LookupError(f"{namespace}/{name}")


async def answers(*bodies: bytes) -> list[dict[str, Any]]:
    now = datetime.now(timezone.utc)
    certificate = ServingCertificate()
    certificate.use(issue(new_authority("test", now), ["localhost"], now))
    metrics = AdmissionMetrics(CollectorRegistry())
    pods = PodsWebhook(lambda: DEFAULT_SETTINGS, Owners(None, nobody, metrics))
    server = ReviewServer((pods.webhook,), metrics, {}, certificate.context)
    port = await server.start(HOST, 0)
    try:
        return [await asyncio.to_thread(post, port, body) for body in bodies]
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("level", "told"),
    [(logging.INFO, ["refused"]), (logging.DEBUG, ["patched", "unchanged", "refused"])],
)
def test_the_log_tells_of_refusals_and_at_debug_level_of_all(
    level: int, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [review_of(limits) for limits in ({"bitfusion.io/gpu-50": "1"}, {}, {"bitfusion.io/gpu-0": "1"})]
    with caplog.at_level(level, "bitfusion_cluster.webhooks.review_server"):
        injected, left_alone, refused = asyncio.run(answers(*bodies))
    assert "patch" in injected
    assert "patch" not in left_alone
    assert not refused["allowed"]
    lines = [vars(record) for record in caplog.records if record.message == "review answered"]
    assert [line["outcome"] for line in lines] == told
    assert lines[-1]["reason"] == refused["status"]["message"]
    assert "bitfusion.io/gpu-0" in lines[-1]["reason"]
