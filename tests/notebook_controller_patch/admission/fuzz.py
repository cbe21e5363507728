"""Fuzz admission: ``python -m tests.notebook_controller_patch.admission.fuzz --reviews 100000``.

Every random review is answered from its bytes on, and its patch applied by another implementation of
RFC 6902. Checked each time: no crash; nothing foreign dropped or changed, limits untouched; the second pass
is empty; what was valid against the API's schemas still is; the objects given are never written to; a running
template keeps its annotations, any other mirrors its Notebook's. A failure prints the review and the number
that reproduces it: ``--first NUMBER --reviews 1``.
"""

from __future__ import annotations

import argparse
import base64
import copy
import hashlib
import json
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import jsonpatch
import jsonschema
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_client.kubernetes.notebook_changes import apply_changes, notebook_changes
from bitfusion_cluster.webhooks.review import BadReview, Review, Verdict, read_review
from bitfusion_cluster.webhooks.review_json import encode_answer, parse_review
from tests.notebook_controller_patch.admission.random_reviews import Case, case, decide
from tests.notebook_controller_patch.admission.reviews import (
    DEFAULTS,
    LABEL,
    MANAGEMENT,
    OS,
    OURS,
    PENDING,
    REQUEST,
    VERSION,
    answered,
    body,
    with_patch_read,
)

KUBERNETES = ("1.25", "1.34", "1.37")  # oldest and newest that have schemas, and the test cluster's
HALF_A_PAIR = b"\\ud800"
NOTEBOOK_KEYS = {*DEFAULTS, LABEL}
WORD = re.compile("(?=.*[A-Za-z0-9])[A-Za-z0-9._-]{1,63}")
CARRIED = {
    MANAGEMENT: re.compile("injection|none"),
    OS: WORD,
    VERSION: WORD,
    REQUEST: re.compile("(?s:.){0,4096}"),
    "bitfusion-client/filter": re.compile("(?s:.){0,1024}"),
}


def check(one: Case, number: int = 0) -> tuple[str, bytes]:
    """Check one review; returns what happened, and the answer's bytes. AssertionError tells what is wrong."""
    owner = copy.deepcopy(one.owner)
    parsed, verdict = decide(one.review, one.owner)
    data = json.dumps(answered(parsed, verdict)).encode()
    assert parsed == read_review(json.loads(body(one.review))), "an object was changed in place"
    _check_bytes(one, parsed, verdict)
    assert one.owner == owner, "the owner was changed in place"

    response = json.loads(data)["response"]
    if "bitfusion.io/admission: ignore" in _labels(one, parsed):
        assert verdict.allowed
        assert verdict.patch == []
    assert response["uid"] == one.review["request"]["uid"]
    assert all(len(warning) <= 256 for warning in response.get("warnings", ()))
    if not verdict.allowed:
        _check_refusal(one, parsed, response)
        return "refused", data
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    if not patch:
        return "unchanged", data
    result = jsonpatch.apply_patch(copy.deepcopy(parsed.object), copy.deepcopy(patch))
    _check_result(one, parsed, result, patch)
    _check_second_pass(one, result)
    if "remove" not in [operation["op"] for operation in patch]:
        assert jsonpatch.apply_patch(copy.deepcopy(result), copy.deepcopy(patch)) == result
    valid = _is_still_valid(one, parsed.object or {}, result, KUBERNETES[number % len(KUBERNETES)])
    return "patched" if valid else "patched, odd before", data


def _check_bytes(one: Case, parsed: Review, verdict: Verdict) -> None:
    """The server's reading and writing agree with the standard library's."""
    posted = body(one.review)
    if HALF_A_PAIR in posted:  # which the apiserver never sends
        with suppress(BadReview):
            raise AssertionError(f"read: {parse_review(posted)}")
        return
    assert parse_review(posted) == parsed
    written = json.loads(encode_answer(parsed, verdict))
    assert with_patch_read(written) == with_patch_read(answered(parsed, verdict))


def _labels(one: Case, parsed: Review) -> list[str]:
    place = ("metadata", "labels") if one.is_notebook else ("spec", "template", "metadata", "labels")
    return [f"{key}: {value}" for key, value in _inside(parsed.object, place).items()]


def _check_refusal(one: Case, parsed: Review, response: Mapping[str, Any]) -> None:
    assert one.is_notebook, "a StatefulSet was refused"
    assert response["status"]["code"] == 422
    message = response["status"]["message"]
    assert message.startswith("Invalid value ") or message.lower().startswith("bitfusion.io/gpu"), message
    assert len(message.splitlines()) == 1, message
    text = json.dumps(parsed.object)
    assert "bitfusion" in text, "an object without a word of ours was refused"
    assert "patch" not in response
    assert parsed.object is not None
    if parsed.operation == "UPDATE" and parsed.old_object is not None:
        assert _ours_of(parsed.object) != _ours_of(parsed.old_object), "nothing of ours was edited"


def _check_result(one: Case, parsed: Review, result: dict[str, Any], patch: list[dict[str, Any]]) -> None:
    assert parsed.object is not None
    place = ("metadata",) if one.is_notebook else ("spec", "template", "metadata")
    parts = ("annotations", "labels") if one.is_notebook else ("annotations",)
    prefix = "".join("/" + name for name in place)
    for operation in patch:
        assert operation["op"] in ("add", "remove"), operation
        allowed = [prefix] + [f"{prefix}/{part}" for part in parts]
        whole = operation["path"] in allowed
        assert whole or operation["path"].rpartition("/")[0] in allowed[1:], operation
        if whole:
            assert operation == {"op": "add", "path": operation["path"], "value": {}}
    old_metadata, new_metadata = _inside(parsed.object, place), _inside(result, place)
    for part in parts:
        old, new = old_metadata.get(part) or {}, new_metadata.get(part) or {}
        for key in {*old, *new}:
            if not _is_ours(one, key):
                assert key in old, f"{key!r} was added"
                assert key in new, f"{key!r} was dropped"
                assert old[key] == new[key], f"{key!r} was changed"
    for inner in (copied := copy.deepcopy(parsed.object), rest := copy.deepcopy(result)):
        metadata = _inside(inner, place)
        for part in parts:
            metadata.pop(part, None)
        if not metadata and isinstance(_inside(inner, place[:-1]), dict):
            _inside(inner, place[:-1]).pop(place[-1], None)
    assert copied == rest, "something else than the annotations was changed"
    if one.is_notebook:
        changes = notebook_changes(parsed.object, DEFAULT_RULES)
        assert result == apply_changes(parsed.object, changes), "the form's hook would do otherwise"
        _check_notebook(parsed, old_metadata, new_metadata)
    else:
        _check_template(one, parsed, new_metadata.get("annotations") or {})


def _check_notebook(parsed: Review, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    before, after = old.get("annotations") or {}, new.get("annotations") or {}
    if (new.get("labels") or {}).get(LABEL) == "true":
        assert all(key in after for key in DEFAULTS), "the label without its annotations"
        assert all(after[key] == before[key] for key in before), "the user's own value was changed"
    else:
        assert LABEL not in (new.get("labels") or {})
        assert set(after) <= set(before)
        assert LABEL in (old.get("labels") or {}), "the annotations of somebody else were removed"


def _check_template(one: Case, parsed: Review, annotations: Mapping[str, Any]) -> None:
    ours = {key: value for key, value in annotations.items() if _is_ours(one, key)}
    assert parsed.object is not None
    old = parsed.old_object
    running = parsed.operation == "UPDATE" and old is not None and _replicas(old) and _replicas(parsed.object)
    source: Mapping[str, Any] = one.owner or {}
    if running and _sizes(old) == _sizes(parsed.object):
        source = _inside(old, ("spec", "template", "metadata", "annotations"))
        assert ours == {key: value for key, value in source.items() if _is_kept(one, key, value)}
    else:
        assert one.owner is not None, "an unknown owner changed something"
        assert ours == {key: value for key, value in source.items() if _is_carried(key, value)}
    assert parsed.username != OURS


def _check_second_pass(one: Case, result: dict[str, Any]) -> None:
    again = copy.deepcopy(one.review)
    again["request"]["object"] = result
    _, verdict = decide(again, one.owner)
    assert verdict.allowed
    assert verdict.patch == [], f"second pass: {verdict.patch}"


def _is_still_valid(one: Case, before: dict[str, Any], after: dict[str, Any], version: str) -> bool:
    """Whether the result is valid; it may only be otherwise if the object was not valid before."""
    if one.is_notebook:
        before, after = _pod_template(before), _pod_template(after)
    validator = schema("podtemplate-v1" if one.is_notebook else "statefulset-apps-v1", version)
    if validator.is_valid(after):
        return True
    error = next(validator.iter_errors(after))
    assert not validator.is_valid(before), f"no longer valid against {version}: {error.message}"
    return False


@cache
def schema(name: str, version: str) -> jsonschema.protocols.Validator:
    """The strict schema that kubernetes-validate has for a kind; it reads it anew for each object itself."""
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    contents = schema_contents(f"{folder}/{name}.json", version)
    definitions = schema_contents(f"{folder}/_definitions.json", version)
    registry: Registry[Any] = Registry().with_resources([])
    for resource in (contents, definitions):
        registry = Resource.from_contents(resource) @ registry
    return jsonschema.Draft202012Validator(contents, registry=registry)


def _pod_template(made: dict[str, Any]) -> dict[str, Any]:
    spec = made.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else spec
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": made.get("metadata"), "template": template}


def _is_ours(one: Case, key: str) -> bool:
    if one.is_notebook:
        return key in NOTEBOOK_KEYS
    return key.startswith(("auto-management/", "bitfusion-client/")) or key in (REQUEST, PENDING)


def _is_kept(one: Case, key: str, value: object) -> bool:
    return _is_ours(one, key) and isinstance(value, str)


def _is_carried(key: str, value: object) -> bool:
    return key in CARRIED and isinstance(value, str) and bool(CARRIED[key].fullmatch(value))


def _inside(made: Any, place: tuple[str, ...]) -> dict[str, Any]:
    for name in place:
        made = made.get(name) if isinstance(made, dict) else None
    return made if isinstance(made, dict) else {}


def _ours_of(made: dict[str, Any]) -> object:
    """All of a Notebook that can be wrong."""
    annotations, pod = _inside(made, ("metadata", "annotations")), _inside(made, ("spec", "template", "spec"))
    return (
        {name: annotations[name] for name in CARRIED if name in annotations},
        pod.get("containers"),
        pod.get("initContainers"),
    )


def _replicas(made: Any) -> bool:
    replicas = _inside(made, ("spec",)).get("replicas", 1)
    return bool(replicas) if isinstance(replicas, int) else True


def _sizes(made: Any) -> object:
    containers = _inside(made, ("spec", "template", "spec")).get("containers")
    found = {}
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict):
            limits = _inside(container, ("resources", "limits"))
            sizes = {key: str(value) for key, value in limits.items() if key.startswith("bitfusion.io/gpu-")}
            if sizes:
                found[str(container.get("name"))] = sizes
    return found


def run(seed: int, first: int, reviews: int, *, progress: bool) -> tuple[Counter[str], str]:
    """Check that many reviews; counts what was decided, and the digest of all answers."""
    outcomes: Counter[str] = Counter()
    total = hashlib.sha256()
    began = time.monotonic()
    for done in range(1, reviews + 1):
        number = first + done - 1
        one = case(seed, number)
        try:
            outcome, data = check(one, number)
        except Exception:
            print(f"review {number} of seed {seed}:\n{json.dumps(one.review, indent=1)}", file=sys.stderr)
            raise
        outcomes[outcome] += 1
        total.update(data + b"\n")
        if progress and done % max(1, reviews // 20) == 0:
            rate = done / (time.monotonic() - began)
            print(f"{done:>8} of {reviews}, {rate:.0f} a second", file=sys.stderr, flush=True)
    return outcomes, total.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--reviews", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first review")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        outcomes, digest = run(options.seed, options.first, options.reviews, progress=True)
    except Exception:
        traceback.print_exc()
        return 1
    counted = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"{options.reviews} reviews in {time.monotonic() - began:.0f} s: {counted}; none failed")
    print(f"seed {options.seed}, SHA-256 of the answers {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
