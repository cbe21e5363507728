"""The answer to a review of a pod."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
import pytest

from bitfusion_cluster.webhooks.review import UNTOUCHED
from bitfusion_cluster.webhooks.review_json import encode_answer, parse_review
from bitfusion_device_plugin.injector.injection.injected_pod import admit_pod, injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS
from tests.bitfusion_device_plugin.injector.pods import AMOUNT, HALF, REQUEST, Object, container, pod


def review(new: Any, **fields: Any) -> bytes:
    """The body that the API server posts."""
    request = {
        "uid": "0123",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "ann",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:statefulset-controller"},
        "object": new,
        **fields,
    }
    data = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(data).encode()


def admitted(new: Object, notebook: Any = None, **fields: Any) -> Object:
    """The response to a review."""
    parsed = parse_review(review(new, **fields))
    answer = json.loads(encode_answer(parsed, admit_pod(parsed, DEFAULT_SETTINGS, notebook)))
    return dict(answer["response"])


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_pod_that_asks_gets_a_patch(dry_run: bool) -> None:
    before = pod(container({HALF: "1"}))
    response = admitted(before, dryRun=dry_run)
    assert response["allowed"] is True
    patch = json.loads(base64.b64decode(response["patch"]))
    assert jsonpatch.apply_patch(before, patch) == injected_pod(before, "ann")
    again = admitted(jsonpatch.apply_patch(before, patch), dryRun=dry_run)
    assert again == {"uid": "0123", "allowed": True}


def test_the_notebooks_annotations_are_asked() -> None:
    response = admitted(pod(container(), annotations=None, notebook="nb"), {REQUEST: "-n 1"})
    assert b"-n 1" in base64.b64decode(response["patch"])


def test_a_pod_that_cannot_be_is_refused() -> None:
    response = admitted(pod(container({AMOUNT: "0.5"})))
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert response["status"]["message"].startswith(
        'Invalid value "0.5" for bitfusion.io/gpu-amount: must be '
    )


@pytest.mark.parametrize(
    ("new", "fields"),
    [
        (None, {}),
        ([], {}),
        (pod(container()), {}),
        (pod(container({AMOUNT: "0.5"})), {"operation": "UPDATE"}),
        (pod(container({AMOUNT: "0.5"})), {"operation": "DELETE"}),
        (pod(container({AMOUNT: "0.5"})), {"subResource": "ephemeralcontainers"}),
        (pod(container({AMOUNT: "0.5"})), {"kind": {"kind": "Deployment"}}),
        (pod(container({AMOUNT: "0.5"})), {"namespace": "kube-system"}),
    ],
)
def test_everything_else_passes_as_it_is(new: Any, fields: dict[str, Any]) -> None:
    assert admit_pod(parse_review(review(new, **fields)), DEFAULT_SETTINGS) == UNTOUCHED
