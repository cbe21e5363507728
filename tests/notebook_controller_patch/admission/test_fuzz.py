"""The fuzz of admission, shortened; and the properties that it checks."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitfusion_cluster.webhooks.review import BadReview, Review
from bitfusion_cluster.webhooks.review_json import parse_review
from tests.notebook_controller_patch.admission import golden, random_reviews
from tests.notebook_controller_patch.admission.fuzz import check, run
from tests.notebook_controller_patch.admission.random_reviews import decide, digest, random_case
from tests.notebook_controller_patch.admission.reviews import answered, body, notebook, review, statefulset
from tests.support.machine import scaled
from tools.environment import SUPPORTED, find_python

ROOT = Path(__file__).parents[3]


def test_random_reviews() -> None:
    outcomes, total = run(seed=2, first=0, reviews=2000, progress=False)
    assert sum(outcomes.values()) == 2000
    # most of the patches are of objects that the API would have let in
    assert outcomes["patched"] > 600
    assert outcomes["refused"] > 100
    assert outcomes["unchanged"] > 500
    assert total == digest(2, 2000)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_random_reviews_that_shrink(rng: random.Random) -> None:
    check(random_case(rng))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=200) | JSON.map(lambda data: repr(data).encode()))
def test_bytes_of_any_kind_are_a_review_or_are_told_why_not(posted: Any) -> None:
    try:
        parsed = parse_review(posted)
    except BadReview as error:
        text = str(error)
    else:
        pytest.fail(f"taken for a review: {parsed}")
    assert len(text.splitlines()) == 1
    assert text.isascii()


@given(
    st.sampled_from(["Notebook", "StatefulSet"]),
    st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
    JSON,
    JSON,
    st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
def test_objects_of_any_shape_pass_untouched_or_patched_but_never_crash(
    kind: Any, operation: Any, new: Any, old: Any, owner: Any
) -> None:
    data = review({"metadata": {}}, kind=kind, operation=operation, object=new, oldObject=old)
    parsed, verdict = decide(data, owner)
    assert verdict.allowed
    answered(parsed, verdict)


PLACES = [
    ("metadata",),
    ("metadata", "annotations"),
    ("metadata", "labels"),
    ("metadata", "ownerReferences"),
    ("spec",),
    ("spec", "replicas"),
    ("spec", "template"),
    ("spec", "template", "metadata"),
    ("spec", "template", "metadata", "annotations"),
    ("spec", "template", "spec"),
    ("spec", "template", "spec", "containers"),
]


@given(
    st.sampled_from([notebook({"bitfusion.io/gpu-50": "1"}), statefulset({"bitfusion.io/gpu-50": "1"})]),
    st.sampled_from(PLACES),
    JSON,
    st.booleans(),
)
def test_anything_in_any_place_of_a_usual_object(object_: Any, place: Any, value: Any, update: Any) -> None:
    def with_value(made: Any, path: Any) -> dict[str, Any]:
        name, *rest = path
        inner = made.get(name)
        return {**made, name: with_value(inner if isinstance(inner, dict) else {}, rest) if rest else value}

    new = with_value(object_, place)
    parsed, verdict = decide(
        review(new, object_ if update else None, kind=object_["kind"]), {"auto-management/x": "y"}
    )
    assert isinstance(parsed, Review)
    answered(parsed, verdict)


def other_pythons() -> list[str]:
    own = f"3.{sys.version_info.minor}"
    found = {version: find_python(version) for version in SUPPORTED if version != own}
    return [python for python in found.values() if python]


def run_module(python: str, module: str, seed: str, *arguments: str) -> str:
    """The output of a module of this folder, which needs nothing but the standard library."""
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, "-S", "-m", module, *arguments],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=scaled(50),
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_the_same_patches_with_every_hash_seed(seed: str) -> None:
    assert run_module(sys.executable, random_reviews.__name__, seed, "--reviews", "300") == digest(1, 300)
    assert run_module(sys.executable, golden.__name__, seed) == ""


def test_the_same_patches_with_every_python() -> None:
    for python in other_pythons():
        assert run_module(python, random_reviews.__name__, "random", "--reviews", "300") == digest(1, 300)
        assert run_module(python, golden.__name__, "random") == ""


def test_the_patches_of_the_version_before() -> None:
    """If this fails, old and new replicas would patch the same object differently during an upgrade."""
    assert golden.differences() == []


def test_the_pinned_reviews_are_those_of_the_table() -> None:
    stored = json.loads(golden.FILE.read_text(encoding="utf-8"))
    assert {one["name"]: (one["review"], one["owner"]) for one in stored} == golden.cases()


@pytest.mark.parametrize("name", golden.cases())
def test_the_order_of_an_objects_keys_does_not_matter(name: Any) -> None:
    def reversed_(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reversed_(value[key]) for key in reversed(value)}
        return value

    data, owner = golden.cases()[name]
    assert golden.answer_text(reversed_(data), reversed_(owner)) == golden.answer_text(data, owner)
    assert body(data) != body(reversed_(data))
