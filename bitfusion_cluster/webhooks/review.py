"""Reads the AdmissionReview that the apiserver sends, and builds the answer to it. Dicts in, dicts out; pure.

Format: ``admission.k8s.io/v1 AdmissionReview``. Only what is decided by is read; the objects stay raw dicts.
`review_json` makes them of a request's body, and a response's body of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bitfusion_client.kubernetes.raw_objects import mapping, text
from bitfusion_cluster.api.json_patch import Operation

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
AUDIT_KEY = "changed"  # the apiserver puts the webhook's name before it: notebooks.bitfusion.io/changed
LONGEST_WARNING = 256  # characters: longer ones the apiserver may cut

UNPROCESSABLE = 422  # as for any other object that its schema refuses
FAULT = 500  # of ours: the object may be right


class BadReview(ValueError):
    """What was posted is no review that could be answered; its text is one line for whoever posted it."""


@dataclass(frozen=True, slots=True)
class Review:
    """One request for admission. `object` and `old_object` are None where the operation has none."""

    uid: str
    operation: str
    kind: str
    name: str
    namespace: str
    object: dict[str, Any] | None
    old_object: dict[str, Any] | None
    dry_run: bool
    username: str
    sub_resource: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is answered.

    Attributes:
        message: Of a refusal, with its `code` (HTTP).
        warnings: For the person who sent the request, and only what that person can do something about: a
            pipeline with ``--warnings-as-errors`` ends with them. One line of text each.
        notes: What was done to the object and why, for the API server's audit log.
    """

    allowed: bool = True
    patch: list[Operation] = field(default_factory=list)
    message: str = ""
    code: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


UNTOUCHED = Verdict()


def read_review(data: object) -> Review:
    """The review that was posted. Raises BadReview."""
    if not isinstance(data, dict):
        raise BadReview("the body is not an AdmissionReview: it must be a JSON object")
    if data.get("kind") != KIND or data.get("apiVersion") != API_VERSION:
        given = f"{_word(data.get('apiVersion'))} {_word(data.get('kind'))}"
        raise BadReview(f"the body must be {API_VERSION} {KIND}, but is {given}")
    request = data.get("request")
    if not isinstance(request, dict):
        raise BadReview("the AdmissionReview has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadReview("the AdmissionReview's request has no uid")
    operation = request.get("operation")
    if not isinstance(operation, str) or not operation:
        raise BadReview("the AdmissionReview's request has no operation")
    kind, user = mapping(request.get("kind")), mapping(request.get("userInfo"))
    new, old = request.get("object"), request.get("oldObject")
    return Review(
        uid,
        operation,
        text(kind.get("kind")),
        text(request.get("name")),
        text(request.get("namespace")),
        new if isinstance(new, dict) else None,
        old if isinstance(old, dict) else None,
        request.get("dryRun") is True,
        text(user.get("username")),
        text(request.get("subResource")),
    )


def answer(review: Review, verdict: Verdict, patch: str) -> dict[str, Any]:
    """The AdmissionReview that carries the verdict; `patch` is the verdict's, as JSON in base64."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": verdict.allowed}
    if verdict.patch and verdict.allowed:
        response["patchType"] = "JSONPatch"
        response["patch"] = patch
    if verdict.warnings:
        response["warnings"] = [_cut(warning, LONGEST_WARNING) for warning in verdict.warnings]
    if verdict.notes:
        response["auditAnnotations"] = {AUDIT_KEY: "; ".join(verdict.notes)}
    if not verdict.allowed:
        response["status"] = {
            "status": "Failure",
            "message": verdict.message,
            "reason": "Invalid" if verdict.code == UNPROCESSABLE else "InternalError",
            "code": verdict.code,
        }
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def shortened(value: object) -> str:
    """Anything as a few words of printable ASCII."""
    return _cut(" ".join(ascii(str(value))[1:-1].split()), 120)


def _word(value: object) -> str:
    return shortened(value) if isinstance(value, str) and value else "nothing"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
