from __future__ import annotations

import copy

import pytest

from notebook_controller_patch.propagation import (
    annotations_of_template,
    is_running,
    kept_annotations,
    pending_change,
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
    notebook,
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
def test_a_template_mirrors_its_notebook_and_keeps_what_is_foreign(template, owner, wanted):
    before = copy.deepcopy((template, owner))
    assert template_annotations(template, owner) == wanted
    assert template_annotations(template_annotations(template, owner), owner) == wanted
    assert (template, owner) == before


def test_a_running_template_keeps_ours_and_takes_foreign_changes():
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
def test_running_means_replicas_before_and_after(old, new, running):
    assert is_running(statefulset(replicas=old), statefulset(replicas=new)) is running


def test_nothing_before_is_not_running():
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
def test_sizes_that_differ_remake_the_pod(old, new, differ):
    assert sizes_differ(statefulset(old), statefulset(new)) is differ


def test_sizes_are_compared_by_container():
    one, other = statefulset({AMOUNT: "1"}), statefulset({AMOUNT: "1"})
    side = {"name": "side", "image": "side"}
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
def test_objects_of_any_shape_are_borne(odd):
    assert annotations_of_template(odd) is None
    assert template_sizes(odd) == {}
    assert not sizes_differ(odd, odd)
    assert is_running(odd, odd)
    assert pending_change(odd, odd) is None


OTHER_CLIENT = {MANAGEMENT: "injection", OS: "ubuntu20", VERSION: "450"}
LONG = "-n 2 --filter " + "k" * 500 + "=v"


@pytest.mark.parametrize(
    ("sizes", "owner", "template", "text"),
    [
        ({AMOUNT: "2"}, DEFAULTS, DEFAULTS, None),
        # foreign keys and those that are not carried are no change of ours
        ({AMOUNT: "2"}, {**DEFAULTS, "a": "b"}, {**DEFAULTS, "c": "d", PENDING: "x"}, None),
        (
            {AMOUNT: "2"},
            {**DEFAULTS, REQUEST: "-n 1 -p 0.5"},
            DEFAULTS,
            "1 GPU × 50 % instead of 2 GPUs, from the next start on",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            {**DEFAULTS, REQUEST: "-n 1 -p 0.5"},
            "2 GPUs instead of 1 GPU × 50 %, from the next start on",
        ),
        (
            {},
            {**DEFAULTS, REQUEST: "-n 1"},
            None,
            "1 GPU instead of no GPU, from the next start on",
        ),
        (
            {},
            {},
            {**DEFAULTS, REQUEST: "-n 1"},
            "no GPU instead of 1 GPU, from the next start on",
        ),
        # the same size, another spelling
        (
            {AMOUNT: "2"},
            {**DEFAULTS, REQUEST: "-n 2"},
            DEFAULTS,
            "bitfusion.io/request -n 2, from the next start on",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            OTHER_CLIENT,
            "bitfusion-client/os ubuntu22 instead of ubuntu20, bitfusion-client/version 454 instead of 450, "
            "from the next start on",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            None,
            "auto-management/bitfusion injection, bitfusion-client/os ubuntu22, "
            "bitfusion-client/version 454, from the next start on",
        ),
        ({}, {}, {OS: "ubuntu22"}, "without bitfusion-client/os, from the next start on"),
        # a size that cannot be, on either side
        (
            {AMOUNT: "2"},
            {**DEFAULTS, REQUEST: "-n 0"},
            DEFAULTS,
            "a wrong size instead of 2 GPUs, from the next start on",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            {**DEFAULTS, REQUEST: "nonsense"},
            "2 GPUs instead of a wrong size, from the next start on",
        ),
    ],
)
def test_what_waits_for_the_next_start_is_told(sizes, owner, template, text):
    assert pending_change(notebook(sizes, owner), statefulset(sizes, template)) == text


def test_a_pending_text_stays_readable():
    text = pending_change(notebook({AMOUNT: "1"}, {REQUEST: LONG}), statefulset({AMOUNT: "1"}, {}))
    assert text is not None
    assert text.endswith("…, from the next start on")
    assert len(text) < 450
    assert "\n" not in text
