"""What a dry run says of the way from the API server to the webhooks, and when who is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiFailure, Conflict, Forbidden, NoAnswer, ServerError
from bitfusion_cluster.monitoring.metrics import AdmissionMetrics
from bitfusion_cluster.webhooks.review import Review
from bitfusion_cluster.webhooks.self_check import (
    ANNOTATION,
    BELIEVED,
    LABEL,
    REACHABLE,
    RETRY_S,
    UNREACHABLE,
    CheckedProgram,
    SelfCheck,
    judged_answer,
    judged_failure,
)

# As kube-apiserver 1.34 has it.
FAILED = 'Internal error occurred: failed calling webhook "{}": failed to call webhook: {}'
POST = 'Post "https://x.kubeflow.svc:443/admit/self-check?timeout=5s": context deadline exceeded'
UNREACHED = ServerError(500, "InternalError", FAILED.format("self-check.bitfusion.io", POST))
ANSWERED = {"metadata": {"annotations": {ANNOTATION: "replica"}}}
Step = ApiFailure | dict[str, Any]


class Api:
    """Answers dry runs of Leases as it is told, and keeps Events by their names."""

    def __init__(self) -> None:
        self.next: Step = ANSWERED
        self.events: dict[str, dict[str, Any]] = {}
        self.leases: list[Mapping[str, Any]] = []

    def create(self, path: str, body: Mapping[str, Any], dry_run: bool = False) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if path == "/apis/coordination.k8s.io/v1/namespaces/kubeflow/leases":
            assert dry_run
            self.leases.append(body)
            if isinstance(self.next, ApiFailure):
                raise self.next
            return self.next
        assert path == "/api/v1/namespaces/kubeflow/events"
        assert not dry_run
        if name in self.events:
            raise Conflict(409, "AlreadyExists", "")
        self.events[name] = dict(body)
        return {}

    def said(self) -> list[str]:
        return [event["reason"] for event in self.events.values()]


class Checked:
    """A self-check, step by step."""

    def __init__(self, tells: bool = True) -> None:
        self.api = Api()
        self.registry = CollectorRegistry()
        program = CheckedProgram("ours", "kubeflow", "ours", "Nothing works.", 60)
        metrics = AdmissionMetrics(self.registry)
        api = cast(KubernetesApi, self.api)
        self.check = SelfCheck(api, program, lambda: True, lambda: tells, metrics, "replica-1")

    def step(self, seen: Step, times: int = 1) -> float:
        self.api.next = seen
        return [self.check.step(8443) for _ in range(times)][-1]

    @property
    def reachable(self) -> float | None:
        return self.registry.get_sample_value("bitfusion_admission_reachable")

    def counted(self, result: str) -> float | None:
        return self.registry.get_sample_value("bitfusion_admission_self_checks_total", {"result": result})


@pytest.mark.parametrize(
    ("error", "result", "words"),
    [
        (UNREACHED, "unreached", POST),
        (ServerError(500, "", FAILED.format("self-check.bitfusion.io", "x509")), "unreached", "x509"),
        # somebody else's webhook, a policy, an API server in trouble: nothing about ours
        (ServerError(500, "", FAILED.format("validate.kyverno.svc", POST)), "not_known", None),
        (Forbidden(403, "Forbidden", "leases is forbidden"), "not_known", None),
        (NoAnswer(answered="timeout"), "not_known", None),
        (Conflict(409, "AlreadyExists", "leases already exists"), "not_known", None),
    ],
)
def test_only_the_api_servers_word_about_our_webhook_counts(
    error: ApiFailure, result: str, words: str | None
) -> None:
    assert judged_failure(error) == (result, str(error) if words is None else words)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (ANSWERED, "reached"),
        ({"metadata": {"annotations": {"other": "x"}}}, "not_asked"),
        ({"metadata": {"annotations": None}}, "not_asked"),
        ({}, "not_asked"),
    ],
)
def test_who_was_asked_has_left_an_annotation(answer: dict[str, Any], result: str) -> None:
    assert judged_answer(answer) == result


def test_the_webhook_signs_what_it_is_asked_about_and_nothing_else() -> None:
    webhook = Checked().check.webhook
    assert webhook.path == "/admit/self-check"
    lease = {"metadata": {"name": "x", "labels": {LABEL: "ours"}}}
    verdict = webhook.decide(Review("1", "CREATE", "Lease", "x", "kubeflow", lease, None, True, "", ""))
    assert getattr(verdict, "patch", None) == [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/bitfusion.io~1answered-by", "value": "replica-1"},
    ]


def test_before_the_first_check_nothing_is_claimed() -> None:
    checked = Checked()
    assert checked.reachable == -1
    checked.step(NoAnswer(answered="timeout"))
    checked.step({})
    assert (checked.reachable, checked.counted("not_known"), checked.counted("not_asked")) == (-1, 1, 1)
    assert checked.step(ANSWERED) == 60
    assert (checked.reachable, checked.api.said()) == (1, [])
    assert checked.api.leases[0]["metadata"] == {"name": "ours-self-check", "labels": {LABEL: "ours"}}


def test_a_port_that_stays_closed_is_told_once_and_its_opening_too() -> None:
    checked = Checked()
    checked.step(ANSWERED)
    assert checked.step(UNREACHED, BELIEVED - 1) == RETRY_S
    assert (checked.reachable, checked.api.said()) == (1, [])
    checked.step(UNREACHED, 20)
    assert (checked.reachable, checked.api.said()) == (0, [UNREACHABLE])
    (event,) = checked.api.events.values()
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Service", "namespace": "kubeflow", "name": "ours", "uid": ""
    }  # fmt: skip
    assert event["message"] == (
        f"The API server does not reach the webhooks of ours, whose replicas are ready: {POST}. Nothing "
        "works. Let the API server connect to TCP port 8443 of its pods through each firewall and "
        "network policy in between, or choose an open port: docs/how-to/webhook-port.md."
    )
    checked.step(ANSWERED, 3)
    assert (checked.reachable, checked.api.said()) == (1, [UNREACHABLE, REACHABLE])


def test_calls_that_fail_now_and_then_are_no_closed_port() -> None:
    checked = Checked()
    for seen in (ANSWERED, UNREACHED, UNREACHED, ANSWERED, UNREACHED, UNREACHED, ANSWERED):
        checked.step(seen)
    assert (checked.reachable, checked.api.said(), checked.counted("unreached")) == (1, [], 4)


def test_what_says_nothing_ends_no_outage_and_begins_none() -> None:
    checked = Checked()
    steps: list[Step] = [UNREACHED, NoAnswer(answered="timeout"), UNREACHED, {}, UNREACHED]
    for seen in steps:
        checked.step(seen)
    assert (checked.reachable, checked.api.said()) == (0, [UNREACHABLE])
    checked.step(NoAnswer(answered="timeout"), 5)
    assert (checked.reachable, checked.api.said()) == (0, [UNREACHABLE])


def test_a_replica_that_does_not_lead_counts_and_is_silent() -> None:
    checked = Checked(tells=False)
    checked.step(UNREACHED, BELIEVED)
    checked.step(ANSWERED)
    assert (checked.counted("unreached"), checked.api.said()) == (BELIEVED, [])
