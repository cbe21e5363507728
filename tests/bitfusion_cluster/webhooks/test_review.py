"""AdmissionReviews: parsed, refused when they are none, answered."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bitfusion_cluster.webhooks.review import BadReview, Review, Verdict, read_review
from tests.notebook_controller_patch.admission.reviews import CONTROLLER, UID, answered, notebook, review


def test_a_review_as_the_apiserver_sends_it() -> None:
    new, old = notebook(), notebook(name="nb")
    data = review(new, old)
    data["request"]["dryRun"] = True
    assert read_review(data) == Review(
        uid=UID,
        operation="UPDATE",
        kind="Notebook",
        name="nb",
        namespace="ann",
        object=new,
        old_object=old,
        dry_run=True,
        username=CONTROLLER,
        sub_resource="",
    )


def test_a_deletion_has_no_object() -> None:
    parsed = read_review(review(None, notebook(), operation="DELETE"))
    assert parsed.object is None
    assert parsed.old_object is not None


def without(*path: Any) -> Any:
    data = review(notebook())
    *parents, last = path
    inner = data
    for name in parents:
        inner = inner[name]
    del inner[last]
    return data


def with_value(name: Any, value: Any) -> Any:
    return {**review(notebook()), name: value}


def requested(**fields: Any) -> Any:
    data = review(notebook())
    data["request"].update(fields)
    return data


@pytest.mark.parametrize(
    ("posted", "message"),
    [
        ([], "the body is not an AdmissionReview: it must be a JSON object"),
        ("text", "the body is not an AdmissionReview: it must be a JSON object"),
        (None, "the body is not an AdmissionReview: it must be a JSON object"),
        ({}, "the body must be admission.k8s.io/v1 AdmissionReview, but is nothing nothing"),
        (
            with_value("kind", "Review"),
            "the body must be admission.k8s.io/v1 AdmissionReview, but is admission.k8s.io/v1 Review",
        ),
        (
            with_value("apiVersion", "admission.k8s.io/v1beta1"),
            "the body must be admission.k8s.io/v1 AdmissionReview, but is admission.k8s.io/v1beta1 "
            "AdmissionReview",
        ),
        (
            with_value("kind", "a\n\x1b" + "b" * 300),
            "the body must be admission.k8s.io/v1 AdmissionReview, "
            r"but is admission.k8s.io/v1 a\n\x1bbbb",
        ),
        (
            with_value("kind", ["AdmissionReview"]),
            "the body must be admission.k8s.io/v1 AdmissionReview, but is admission.k8s.io/v1 nothing",
        ),
        (without("request"), "the AdmissionReview has no request"),
        (with_value("request", []), "the AdmissionReview has no request"),
        (without("request", "uid"), "the AdmissionReview's request has no uid"),
        (requested(uid=""), "the AdmissionReview's request has no uid"),
        (requested(uid=7), "the AdmissionReview's request has no uid"),
        (without("request", "operation"), "the AdmissionReview's request has no operation"),
        (requested(operation=None), "the AdmissionReview's request has no operation"),
    ],
)
def test_what_is_no_review_is_told_in_one_line(posted: Any, message: str) -> None:
    with pytest.raises(BadReview) as caught:
        read_review(posted)
    text = str(caught.value)
    assert text.startswith(message)
    assert len(text.splitlines()) == 1
    assert len(text) < 250


@pytest.mark.parametrize(
    "field", ["kind", "userInfo", "object", "oldObject", "name", "namespace", "dryRun", "subResource"]
)
@pytest.mark.parametrize("value", [None, [], "text", 1, {}])
def test_other_fields_may_be_anything(field: str, value: object) -> None:
    parsed = read_review(requested(**{field: value}))
    assert parsed.uid == UID
    assert parsed.dry_run is False


def test_an_answer_that_changes_nothing() -> None:
    parsed = read_review(review(notebook()))
    assert answered(parsed, Verdict()) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }


def test_an_answer_with_a_patch_and_a_warning() -> None:
    patch = [{"op": "add", "path": "/metadata/labels/ü", "value": "true"}]
    parsed = read_review(review(notebook()))
    response = answered(parsed, Verdict(patch=patch, warnings=("w" * 300, "short")))["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"], validate=True)) == patch
    assert response["warnings"] == ["w" * 255 + "…", "short"]


def test_a_refusal() -> None:
    parsed = read_review(review(notebook()))
    verdict = Verdict(False, patch=[{"op": "add", "path": "/a", "value": 1}], message="no", code=422)
    assert answered(parsed, verdict)["response"] == {
        "uid": UID,
        "allowed": False,
        "status": {"status": "Failure", "message": "no", "reason": "Invalid", "code": 422},
    }


def test_notes_go_to_the_audit_log_and_to_nobody_else() -> None:
    parsed = read_review(review(notebook()))
    response = answered(parsed, Verdict(notes=("client chosen", "for the image")))["response"]
    assert response == {
        "uid": UID,
        "allowed": True,
        "auditAnnotations": {"changed": "client chosen; for the image"},
    }
