"""What a template takes over from its Notebook, what it keeps, when it is running."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from notebook_controller_patch.propagation import (
    annotations_of_template,
    is_running,
    kept_annotations,
    replicas,
    sizes_differ,
    template_annotations,
    template_sizes,
)
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    DEFAULTS,
    MANAGEMENT,
    OS,
    PENDING,
    REQUEST,
    VERSION,
    statefulset,
)

HALF = "bitfusion.io/gpu-50"


@pytest.mark.parametrize(
    ("template", "owner", "wanted"),
    [
        (None, None, {}),
        ({}, DEFAULTS, DEFAULTS),
        ({"a/b": "c"}, DEFAULTS, {"a/b": "c", **DEFAULTS}),
        # mirrored: changed, added and removed as the Notebook has them
        (
            {**DEFAULTS, OS: "ubuntu20", REQUEST: "-n 1", "bitfusion-client/filter": "a=b"},
            {**DEFAULTS, REQUEST: "-n 2"},
            {**DEFAULTS, REQUEST: "-n 2"},
        ),
        (DEFAULTS, None, {}),
        (DEFAULTS, {}, {}),
        # of the Notebook nothing else is carried
        (None, {"notebooks.kubeflow.org/creator": "ann", "a/b": "c", PENDING: "x"}, {}),
        # pending is about the Notebook: Kubeflow from 1.8 on copies it when it creates
        ({PENDING: "1 GPU", "a": "b"}, {PENDING: "1 GPU", **DEFAULTS}, {"a": "b", **DEFAULTS}),
        ({"auto-management/status": "injected"}, {}, {}),
        # what the API would refuse is not spread
        ({}, {OS: None, VERSION: {"a": 1}, MANAGEMENT: "injection"}, {MANAGEMENT: "injection"}),
    ],
)
def test_a_template_mirrors_its_notebook_and_keeps_what_is_foreign(
    template: dict[str, Any] | None, owner: dict[str, Any] | None, wanted: dict[str, Any]
) -> None:
    before = copy.deepcopy((template, owner))
    assert template_annotations(template, owner) == wanted
    assert template_annotations(template_annotations(template, owner), owner) == wanted
    assert (template, owner) == before


def test_a_running_template_keeps_ours_and_takes_foreign_changes() -> None:
    old = {**DEFAULTS, PENDING: "x", "a": "old", "gone": "y"}
    new = {OS: "other", REQUEST: "-n 1", "a": "new", "b": "c"}
    assert kept_annotations(old, new) == {**DEFAULTS, PENDING: "x", "a": "new", "b": "c"}
    assert kept_annotations(None, new) == {"a": "new", "b": "c"}
    assert kept_annotations({OS: None, VERSION: "1"}, None) == {VERSION: "1"}


@pytest.mark.parametrize(
    ("old", "new", "running"),
    [
        (1, 1, True),
        (None, 1, True),
        (1, None, True),
        (3, 2, True),
        (1, 0, False),
        (0, 1, False),
        (0, 0, False),
    ],
)
def test_running_means_replicas_before_and_after(old: int | None, new: int | None, running: bool) -> None:
    assert is_running(statefulset(replicas=old), statefulset(replicas=new)) is running


def test_nothing_before_is_not_running() -> None:
    assert not is_running(None, statefulset())
    assert not is_running(statefulset(), None)
    assert replicas({}) == 1
    assert replicas({"spec": {"replicas": None}}) == 1


@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        ({AMOUNT: "1"}, {AMOUNT: "1"}, False),
        ({AMOUNT: "1"}, {AMOUNT: 1}, False),
        ({AMOUNT: "1"}, {AMOUNT: "2"}, True),
        ({AMOUNT: "1"}, {HALF: "1"}, True),
        ({AMOUNT: "1"}, {}, True),
        ({}, {AMOUNT: "1"}, True),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}, False),
        ({"bitfusion.io/gpu": "100"}, {"bitfusion.io/gpu": "200"}, False),
    ],
)
def test_sizes_that_differ_remake_the_pod(old: dict[str, Any], new: dict[str, Any], differ: bool) -> None:
    assert sizes_differ(statefulset(old), statefulset(new)) is differ


def test_sizes_are_compared_by_container() -> None:
    one, other = statefulset({AMOUNT: "1"}), statefulset({AMOUNT: "1"})
    side: dict[str, Any] = {"name": "side", "image": "side"}
    other["spec"]["template"]["spec"]["containers"].insert(0, side)
    assert not sizes_differ(one, other)
    side["resources"] = {"limits": {AMOUNT: "1"}}
    assert template_sizes(other) == {"nb": {AMOUNT: "1"}, "side": {AMOUNT: "1"}}
    assert sizes_differ(one, other)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"spec": None},
        {"spec": {"template": []}},
        {"spec": {"template": {"metadata": [], "spec": {"containers": {}}}}},
        {"spec": {"template": {"metadata": {"annotations": ["a"]}, "spec": {"containers": [1, None, {}]}}}},
    ],
)
def test_objects_of_any_shape_are_tolerated(odd: dict[str, Any]) -> None:
    assert annotations_of_template(odd) is None
    assert template_sizes(odd) == {}
    assert not sizes_differ(odd, odd)
    assert is_running(odd, odd)
