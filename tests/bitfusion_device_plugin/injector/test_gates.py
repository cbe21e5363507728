"""The scheduling gate at which a pod waits for its units, where an administrator wants it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bitfusion_client.kubernetes.names import QUEUE_GATE
from bitfusion_cluster.webhooks.review import UNTOUCHED
from bitfusion_cluster.webhooks.review_json import parse_review
from bitfusion_device_plugin.injector.injection.injected_pod import admit_pod, injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import (
    HALF,
    INJECTION,
    REQUEST,
    UNITS,
    WRAPPED,
    Object,
    container,
    inject,
    pod,
    refused,
)

ON = InjectorSettings(gates=True)
OURS = {"name": QUEUE_GATE}
OTHER = {"name": "example.com/licence"}
IGNORED = {"metadata": {"labels": {"bitfusion.io/admission": "ignore"}}}
MIRROR = {**INJECTION, "kubernetes.io/config.mirror": "x"}


def asking(**spec: Any) -> Object:
    return pod(container({HALF: "1"}), **spec)


def gates(made: Object) -> Any:
    return made["spec"].get("schedulingGates")


@pytest.mark.parametrize("present", [{}, {"schedulingGates": [OTHER]}])
def test_without_the_setting_nobodys_gates_are_touched(present: dict[str, Any]) -> None:
    assert gates(inject(asking(**present))) == present.get("schedulingGates")


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({}, [OURS]),
        ({"schedulingGates": None}, [OURS]),
        ({"schedulingGates": []}, [OURS]),
        ({"schedulingGates": [OTHER]}, [OTHER, OURS]),
        ({"schedulingGates": [OURS]}, [OURS]),
        ({"schedulingGates": [OURS, OTHER]}, [OURS, OTHER]),
    ],
)
def test_a_pod_that_asks_gets_the_gate_once_behind_those_of_others(present: Any, expected: Any) -> None:
    assert gates(inject(asking(**present), settings=ON)) == expected  # `inject` makes a second pass


def test_every_way_of_asking_gets_it() -> None:
    for made in (
        pod(container(), annotations={**INJECTION, REQUEST: "-n 1"}),
        pod(container({HALF: "1"}, command=["x"]), annotations=WRAPPED),
        pod(container(), container({HALF: "2"}, "second")),
    ):
        assert gates(inject(made, settings=ON)) == [OURS]
    notebook = {**INJECTION, REQUEST: "-n 1"}
    assert gates(inject(pod(container(), annotations=None), notebook, ON)) == [OURS]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod(container(), annotations=None), id="asks for nothing"),
        pytest.param(pod(container(), annotations=None, nodeName="n1"), id="with a node"),
        pytest.param(asking(annotations=MIRROR, nodeName="n1"), id="of the kubelet's own"),
        pytest.param({**asking(nodeName="n1"), **IGNORED}, id="left alone"),
        pytest.param(asking(schedulingGates="odd"), id="gates of an impossible shape"),
        pytest.param(asking(schedulingGates=[None]), id="a gate of an impossible shape"),
    ],
)
def test_any_other_pod_stays_as_it_is(made: Object) -> None:
    assert injected_pod(made, "ann", ON) is made


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_gates_are_for_creations_only(operation: str) -> None:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "1", "kind": kind, "namespace": "ann", "operation": operation, "object": asking()}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    assert admit_pod(parse_review(json.dumps(review).encode()), ON) == UNTOUCHED


def test_another_webhooks_gate_between_two_passes_stays_and_ours_is_not_added_again() -> None:
    once = inject(asking(), settings=ON)
    once["spec"]["schedulingGates"] = [OTHER, *once["spec"]["schedulingGates"]]
    assert difference(once, injected_pod(once, "ann", ON)) == []


def test_a_gate_that_another_webhook_took_away_comes_back() -> None:
    once = inject(asking(), settings=ON)
    del once["spec"]["schedulingGates"]
    assert gates(inject(once, settings=ON)) == [OURS]


def test_a_pod_that_names_its_node_is_refused_and_told_how_to_choose_one() -> None:
    words = (
        "spec.nodeName: n1 bypasses the scheduler, which makes a pod wait until its units of the "
        "Bitfusion pool are free. Remove it, and choose the node by spec.nodeSelector "
        "(kubernetes.io/hostname) or by spec.affinity."
    )
    assert refused(asking(nodeName="n1"), settings=ON) == words
    # Also one that is a copy of a running pod, whose sizes are units already.
    copied = inject(asking())
    assert copied["spec"]["containers"][0]["resources"]["limits"][UNITS] == "50"
    copied["spec"]["nodeName"] = "n1"
    assert refused(copied, settings=ON) == words


def test_what_the_refusal_advises_is_let_in() -> None:
    made = asking(nodeSelector={"kubernetes.io/hostname": "n1"})
    assert gates(inject(made, settings=ON)) == [OURS]


def test_with_the_setting_off_a_pod_may_name_its_node() -> None:
    assert inject(asking(nodeName="n1"))["spec"]["nodeName"] == "n1"
