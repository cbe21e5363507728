"""What is written on a Notebook that asks for GPUs, and what is removed when it asks no more."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes import notebook_changes as notebook_changes_module
from bitfusion_client.kubernetes.client_images import ImageRule
from bitfusion_client.kubernetes.notebook_changes import NotebookChanges, apply_changes, notebook_changes
from bitfusion_client.kubernetes.notebook_request import is_left_alone
from bitfusion_client.kubernetes.raw_objects import labels_of
from bitfusion_client.kubernetes.wrong_notebook import brought_by_edit, wrong_values
from bitfusion_client.request.gpu_request import GpuRequest
from tests.support.notebooks import IMAGE, bare_notebook, container

AMOUNT = "bitfusion.io/gpu-amount"
HALF = "bitfusion.io/gpu-50"
REQUEST = "bitfusion.io/request"
LABEL = "bitfusion.io/requested"
MANAGEMENT = "auto-management/bitfusion"
OS = "bitfusion-client/os"
VERSION = "bitfusion-client/version"
WRITTEN = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}


CHOSEN = f"Bitfusion client chosen for the image {IMAGE}: "


@pytest.mark.parametrize(
    ("annotations", "labels", "written", "labelled", "notes"),
    [
        (None, None, WRITTEN, {LABEL: "true"}, (f"{CHOSEN}{OS}=ubuntu22, {VERSION}=454",)),
        ({}, {}, WRITTEN, {LABEL: "true"}, (f"{CHOSEN}{OS}=ubuntu22, {VERSION}=454",)),
        # what somebody has written wins
        (
            {OS: "centos8"},
            None,
            {MANAGEMENT: "injection", VERSION: "454"},
            {LABEL: "true"},
            (f"{CHOSEN}{VERSION}=454",),
        ),
        ({MANAGEMENT: "none", OS: "debian12", VERSION: "1"}, {LABEL: "true"}, {}, {}, ()),
        # the label is what object selectors look for
        (WRITTEN, {LABEL: "false"}, {}, {LABEL: "true"}, ()),
        (WRITTEN, {LABEL: "true"}, {}, {}, ()),
    ],
)
def test_a_notebook_that_asks(
    annotations: Any, labels: Any, written: dict[str, str], labelled: dict[str, str], notes: tuple[str, ...]
) -> None:
    asking = bare_notebook(container(limits={HALF: "1"}), annotations=annotations, labels=labels)
    assert notebook_changes(asking) == NotebookChanges(GpuRequest(1, 0.5), written, labelled, notes=notes)


@pytest.mark.parametrize(
    ("annotations", "labels", "removed", "unlabelled"),
    [
        # without our label nothing here was written by us
        (WRITTEN, None, (), ()),
        ({**WRITTEN, "a/b": "c"}, {LABEL: "true", "app": "nb"}, (MANAGEMENT, OS, VERSION), (LABEL,)),
        ({MANAGEMENT: "none", OS: "ubuntu22", VERSION: "401"}, {LABEL: "true"}, (OS,), (LABEL,)),
        (None, {LABEL: "true"}, (), (LABEL,)),
        ({}, {LABEL: ""}, (), (LABEL,)),
    ],
)
def test_a_notebook_that_asks_no_more(
    annotations: Any, labels: Any, removed: tuple[str, ...], unlabelled: tuple[str, ...]
) -> None:
    changes = notebook_changes(bare_notebook(container(), annotations=annotations, labels=labels))
    assert (changes.request, changes.annotations, changes.labels) == (None, {}, {})
    assert (changes.removed_annotations, changes.removed_labels) == (removed, unlabelled)


@pytest.mark.parametrize("limits", [{HALF: "1"}, {HALF: "0"}, {}])
def test_a_notebook_that_is_to_be_left_alone(limits: Any) -> None:
    labels = {"bitfusion.io/admission": "ignore", LABEL: "true"}
    alone = bare_notebook(container(limits=limits), annotations=WRITTEN, labels=labels)
    assert notebook_changes(alone) == NotebookChanges(None, {}, {})
    assert apply_changes(alone, notebook_changes(alone)) == alone


def test_what_is_removed_is_told() -> None:
    changes = notebook_changes(bare_notebook(container(), annotations=WRITTEN, labels={LABEL: "true"}))
    assert changes.notes == (
        f"Bitfusion GPUs are no longer requested; removed: {LABEL}, {MANAGEMENT}, {OS}, {VERSION}",
    )


def test_the_client_is_chosen_by_the_image_of_the_container_that_asks() -> None:
    rules = (ImageRule("side:1", "centos8", "401"), ImageRule("main:1", "ubuntu22", "454"))
    side = container("side", {HALF: "1"}, "side:1")
    assert (
        notebook_changes(bare_notebook(container(image="main:1"), side), rules).annotations[OS] == "centos8"
    )
    # by annotation only: the notebook's own container, wherever it stands
    by_annotation = bare_notebook(container("side", None, "side:1"), container(image="main:1"))
    by_annotation["metadata"]["annotations"] = {REQUEST: "-n 1"}
    assert notebook_changes(by_annotation, rules).annotations[OS] == "ubuntu22"


def test_images_of_other_containers_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 containers were matched against all rules, for 0.6 s of CPU, when a notebook asked no more."""
    looked_up: list[object] = []

    def client_for_image(image: object, rules: Any) -> ImageRule:
        looked_up.append(image)
        return ImageRule("*", "ubuntu22", "454")

    monkeypatch.setattr(notebook_changes_module, "client_for_image", client_for_image)
    sides = [container(f"side-{number}", None, "x" * 500) for number in range(5000)]
    notebook = bare_notebook(
        *sides, container(image="own"), annotations=WRITTEN, labels={LABEL: "true"}, name="nb"
    )
    changes = notebook_changes(notebook)
    assert changes.removed_annotations == (MANAGEMENT, OS, VERSION)
    assert looked_up == ["own"]


@pytest.mark.parametrize("limits", [None, {HALF: "1"}])
def test_a_value_that_is_not_allowed_is_refused_whether_it_asks_or_not(limits: Any) -> None:
    notebook = bare_notebook(container(limits=limits), annotations={VERSION: "../../x"})
    with pytest.raises(InvalidRequest, match="must be letters"):
        notebook_changes(notebook)


def test_a_container_without_an_image_gets_the_default_client() -> None:
    changes = notebook_changes(bare_notebook({"name": "nb", "resources": {"limits": {HALF: "1"}}}))
    assert changes.annotations == {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}
    assert changes.notes == (
        f"Bitfusion client chosen for the image without a name: {OS}=ubuntu22, {VERSION}=454",
    )


def test_notes_are_short() -> None:
    changes = notebook_changes(
        bare_notebook(container(limits={HALF: "1"}, image="registry.example.org/" + "a" * 400))
    )
    assert all(len(note) < 256 for note in changes.notes)
    assert "a…: " in changes.notes[0]


def test_changes_applied_leave_nothing_to_change() -> None:
    asking = bare_notebook(container(limits={HALF: "1"}), annotations={"a/b~c": "d"})
    before = copy.deepcopy(asking)
    changed = apply_changes(asking, notebook_changes(asking))
    assert asking == before
    assert changed["metadata"]["annotations"] == {"a/b~c": "d", **WRITTEN}
    assert changed["metadata"]["labels"] == {LABEL: "true"}
    assert changed["spec"] == before["spec"]
    assert notebook_changes(changed).is_empty()
    # and back
    del changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][HALF]
    restored = apply_changes(changed, notebook_changes(changed))
    assert restored["metadata"]["annotations"] == {"a/b~c": "d"}
    assert restored["metadata"]["labels"] == {}


def test_nothing_to_change_is_the_same_object_again() -> None:
    plain = bare_notebook(container(), annotations={"a": "b"})
    assert apply_changes(plain, notebook_changes(plain)) == plain


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([MANAGEMENT, OS, VERSION, REQUEST, LABEL, "bitfusion-client/filter", "a/b", "ü~"])
SIZES = st.sampled_from(
    [
        AMOUNT,
        HALF,
        "bitfusion.io/gpu-percent",
        "bitfusion.io/gpu-8gib",
        "bitfusion.io/gpu",
        "bitfusion.io/GPUs",
        "cpu",
    ]
)


def somewhere(inside: Any) -> Any:
    return inside | JSON


CONTAINERS = st.fixed_dictionaries(
    {},
    optional={
        "name": somewhere(st.sampled_from(["nb", "side"])),
        "image": somewhere(st.just(IMAGE)),
        "resources": somewhere(
            st.fixed_dictionaries(
                {},
                optional={
                    "limits": somewhere(st.dictionaries(SIZES, st.sampled_from(["1", "2", "0"]) | JSON)),
                    "requests": somewhere(st.dictionaries(SIZES, st.sampled_from(["1", 1, "2"]) | JSON)),
                },
            )
        ),
    },
)
POD = st.fixed_dictionaries(
    {},
    optional={
        "containers": somewhere(st.lists(somewhere(CONTAINERS), max_size=3)),
        "initContainers": somewhere(st.lists(CONTAINERS, max_size=1)),
    },
)
NOTEBOOKS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": somewhere(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.just("nb"),
                    "annotations": somewhere(st.dictionaries(KEYS, st.text(max_size=6) | JSON, max_size=4)),
                    "labels": somewhere(st.dictionaries(KEYS, st.text(max_size=6) | JSON, max_size=2)),
                },
            )
        ),
        "spec": somewhere(
            st.fixed_dictionaries(
                {}, optional={"template": somewhere(st.fixed_dictionaries({"spec": somewhere(POD)}))}
            )
        ),
    },
)


@given(NOTEBOOKS)
def test_objects_of_any_shape_are_read_and_never_changed_in_place(object_: Any) -> None:
    before = json.dumps(object_, sort_keys=True)
    wrong = wrong_values(object_)
    assert brought_by_edit(object_, object_) == []
    if wrong and not is_left_alone(labels_of(object_)):
        with pytest.raises(InvalidRequest) as caught:
            notebook_changes(object_)
        assert [each.field for each in wrong].count(caught.value.field) == 1
        assert json.dumps(object_, sort_keys=True) == before
        return
    changes = notebook_changes(object_)
    assert json.dumps(object_, sort_keys=True) == before
    changed = apply_changes(object_, changes)
    assert json.dumps(object_, sort_keys=True) == before
    assert notebook_changes(changed).is_empty()
    assert changed.get("spec") == object_.get("spec")
    if changes.request is None and not changes.removed_labels:
        assert changed == object_
