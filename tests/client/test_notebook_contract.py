from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.client_images import ImageRule
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.notebook_contract import (
    NotebookChanges,
    apply_changes,
    bitfusion_part,
    carried_annotations,
    has_size,
    notebook_changes,
    notebook_image,
    notebook_request,
)
from bitfusion_client.request import GpuRequest

AMOUNT = "bitfusion.io/gpu-amount"
HALF = "bitfusion.io/gpu-50"
REQUEST = "bitfusion.io/request"
LABEL = "bitfusion.io/requested"
MANAGEMENT = "auto-management/bitfusion"
OS = "bitfusion-client/os"
VERSION = "bitfusion-client/version"
IMAGE = "kubeflownotebookswg/jupyter-scipy:v1.7.0"
WRITTEN = {MANAGEMENT: "injection", OS: "ubuntu20", VERSION: "450"}


def container(name="nb", limits=None, image=IMAGE):
    result = {"name": name, "image": image}
    if limits is not None:
        result["resources"] = {"limits": limits}
    return result


def notebook(*containers, annotations=None, labels=None, init=()):
    metadata = {"name": "nb", "namespace": "ann"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    pod = {"containers": list(containers)}
    if init:
        pod["initContainers"] = list(init)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": metadata,
        "spec": {"template": {"spec": pod}},
    }


@pytest.mark.parametrize(
    ("object_", "request_"),
    [
        (notebook(container(limits={AMOUNT: "2"})), GpuRequest(2)),
        (notebook(container(limits={"cpu": "1", HALF: "1"})), GpuRequest(1, 0.5)),
        (notebook(container(), container("side", {HALF: "1"})), GpuRequest(1, 0.5)),
        (
            notebook(container(limits={AMOUNT: "2"}), annotations={REQUEST: "-n 1 -p 0.25"}),
            GpuRequest(1, 0.25),
        ),
        (notebook(container(), annotations={REQUEST: "-n 3"}), GpuRequest(3)),
        (notebook(container(limits={"nvidia.com/gpu": "1"})), None),
        (notebook(container(limits={"bitfusion.io/gpu": "100"})), None),
        (notebook(container()), None),
        (notebook(), None),
        # objects that the API would not let in ask for nothing
        ({}, None),
        ({"metadata": None, "spec": None}, None),
        ({"metadata": [], "spec": {"template": []}}, None),
        ({"spec": {"template": {"spec": {"containers": {"a": 1}}}}}, None),
        ({"spec": {"template": {"spec": {"containers": [None, 1, "x", {}]}}}}, None),
        (notebook({"name": "nb", "resources": None}, {"resources": {"limits": None}}), None),
        (notebook({"name": "nb", "resources": {"limits": [AMOUNT]}}), None),
    ],
)
def test_what_a_notebook_asks_for(object_, request_):
    assert notebook_request(object_) == request_


@pytest.mark.parametrize(
    ("object_", "message"),
    [
        (
            notebook(container(limits={AMOUNT: "1.5"})),
            f'Invalid value "1.5" for {AMOUNT}: must be a whole number from 1 to 1024',
        ),
        (
            notebook(container(limits={HALF: "2"}), container("side", {AMOUNT: "1"})),
            f'Invalid value "1" for {AMOUNT} of container "side": '
            'only one container may ask for GPUs; container "nb" does too',
        ),
        (
            notebook(
                container(limits={HALF: "2"}), container("side", {AMOUNT: "1"}), annotations={REQUEST: "-n 1"}
            ),
            f'Invalid value "1" for {AMOUNT} of container "side": '
            'only one container may ask for GPUs; container "nb" does too',
        ),
        (
            notebook(container(), init=[container("prepare", {HALF: "1"})]),
            f'Invalid value "1" for {HALF} of container "prepare": '
            "an init container cannot ask for GPUs, only the notebook's can",
        ),
        (
            notebook(container(), annotations={REQUEST: "-n 0"}),
            f'Invalid value "-n 0" for {REQUEST}: '
            'invalid value "0" for -n: must be a whole number from 1 to 1024',
        ),
        (
            notebook(container(), annotations={REQUEST: None}),
            f'Invalid value "None" for {REQUEST}: must be text',
        ),
    ],
)
def test_what_a_notebook_cannot_ask_for(object_, message):
    for function in (notebook_request, notebook_changes):
        with pytest.raises(InvalidRequest) as caught:
            function(object_)
        assert caught.value.user_message == message


def test_a_request_without_end_is_not_read():
    with pytest.raises(InvalidRequest) as caught:
        notebook_request(notebook(container(), annotations={REQUEST: "-n 1 " * 50_000}))
    assert caught.value.user_message.endswith(f'…" for {REQUEST}: must be at most 4096 characters')
    assert len(caught.value.user_message) < 500


CHOSEN = f"Bitfusion client chosen for the image {IMAGE}: "


@pytest.mark.parametrize(
    ("annotations", "labels", "written", "labelled", "notes"),
    [
        (None, None, WRITTEN, {LABEL: "true"}, (f"{CHOSEN}{OS}=ubuntu20, {VERSION}=450",)),
        ({}, {}, WRITTEN, {LABEL: "true"}, (f"{CHOSEN}{OS}=ubuntu20, {VERSION}=450",)),
        # what somebody has written wins, even if it is empty
        (
            {OS: "centos8"},
            None,
            {MANAGEMENT: "injection", VERSION: "450"},
            {LABEL: "true"},
            (f"{CHOSEN}{VERSION}=450",),
        ),
        ({MANAGEMENT: "none", OS: "", VERSION: "1"}, {LABEL: "true"}, {}, {}, ()),
        # the label is what object selectors look for
        (WRITTEN, {LABEL: "false"}, {}, {LABEL: "true"}, ()),
        (WRITTEN, {LABEL: "true"}, {}, {}, ()),
    ],
)
def test_a_notebook_that_asks(annotations, labels, written, labelled, notes):
    asking = notebook(container(limits={HALF: "1"}), annotations=annotations, labels=labels)
    assert notebook_changes(asking) == NotebookChanges(GpuRequest(1, 0.5), written, labelled, notes=notes)


@pytest.mark.parametrize(
    ("annotations", "labels", "removed", "unlabelled"),
    [
        # without our label nothing here was written by us
        (WRITTEN, None, (), ()),
        ({**WRITTEN, "a/b": "c"}, {LABEL: "true", "app": "nb"}, (MANAGEMENT, OS, VERSION), (LABEL,)),
        ({MANAGEMENT: "all", OS: "ubuntu20", VERSION: "401"}, {LABEL: "true"}, (OS,), (LABEL,)),
        (None, {LABEL: "true"}, (), (LABEL,)),
        ({}, {LABEL: ""}, (), (LABEL,)),
    ],
)
def test_a_notebook_that_asks_no_more(annotations, labels, removed, unlabelled):
    changes = notebook_changes(notebook(container(), annotations=annotations, labels=labels))
    assert (changes.request, changes.annotations, changes.labels) == (None, {}, {})
    assert (changes.removed_annotations, changes.removed_labels) == (removed, unlabelled)


@pytest.mark.parametrize("limits", [{HALF: "1"}, {HALF: "0"}, {}])
def test_a_notebook_that_is_to_be_left_alone(limits):
    labels = {"bitfusion.io/admission": "ignore", LABEL: "true"}
    alone = notebook(container(limits=limits), annotations=WRITTEN, labels=labels)
    assert notebook_changes(alone) == NotebookChanges(None, {}, {})
    assert apply_changes(alone, notebook_changes(alone)) == alone


def test_what_is_removed_is_told():
    changes = notebook_changes(notebook(container(), annotations=WRITTEN, labels={LABEL: "true"}))
    assert changes.notes == (
        f"no Bitfusion GPU is asked for any more; removed: {LABEL}, {MANAGEMENT}, {OS}, {VERSION}",
    )


def test_the_client_is_chosen_by_the_image_of_the_container_that_asks():
    rules = (ImageRule("side:1", "centos8", "401"), ImageRule("main:1", "ubuntu22", "454"))
    side = container("side", {HALF: "1"}, "side:1")
    assert notebook_changes(notebook(container(image="main:1"), side), rules).annotations[OS] == "centos8"
    # by annotation only: the notebook's own container, wherever it stands
    by_annotation = notebook(container("side", None, "side:1"), container(image="main:1"))
    by_annotation["metadata"]["annotations"] = {REQUEST: "-n 1"}
    assert notebook_image(by_annotation) == "main:1"
    assert notebook_changes(by_annotation, rules).annotations[OS] == "ubuntu22"
    by_annotation["metadata"]["name"] = "other"
    assert notebook_image(by_annotation) == "side:1"
    assert notebook_image({}) is None


def test_a_container_without_an_image_gets_the_default_client():
    changes = notebook_changes(notebook({"name": "nb", "resources": {"limits": {HALF: "1"}}}))
    assert changes.annotations == {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}
    assert changes.notes == (
        f"Bitfusion client chosen for the image without a name: {OS}=ubuntu22, {VERSION}=454",
    )


def test_notes_are_short_enough_for_the_api():
    changes = notebook_changes(
        notebook(container(limits={HALF: "1"}, image="registry.example.org/" + "a" * 400))
    )
    assert all(len(note) < 256 for note in changes.notes)
    assert "a…: " in changes.notes[0]


def test_changes_applied_leave_nothing_to_change():
    asking = notebook(container(limits={HALF: "1"}), annotations={"a/b~c": "d"})
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


def test_nothing_to_change_is_the_same_object_again():
    plain = notebook(container(), annotations={"a": "b"})
    assert apply_changes(plain, notebook_changes(plain)) == plain


def test_carried_annotations():
    annotations = {
        **WRITTEN,
        REQUEST: "-n 1",
        "bitfusion.io/pending": "x",
        "notebooks.kubeflow.org/creator": "a",
    }
    assert carried_annotations(annotations) == {**WRITTEN, REQUEST: "-n 1"}
    assert carried_annotations(None) == {}


def test_the_bitfusion_part_of_two_states():
    one = notebook(container(limits={"cpu": "1", HALF: "0"}), annotations={"a": "b"})
    stopped = notebook(
        container(limits={"cpu": "2", HALF: "0"}), annotations={"kubeflow-resource-stopped": "now"}
    )
    assert bitfusion_part(one) == bitfusion_part(stopped)
    for other in (
        notebook(container(limits={HALF: "1"})),
        notebook(container("other", {HALF: "0"})),
        notebook(container(limits={HALF: "0"}), annotations={REQUEST: "-n 1"}),
        notebook(container(limits={HALF: "0"}), init=[container("i", {HALF: "1"})]),
    ):
        assert bitfusion_part(one) != bitfusion_part(other)
    assert has_size(one)
    assert not has_size(notebook(container(limits={"cpu": "1"})))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([MANAGEMENT, OS, VERSION, REQUEST, LABEL, "bitfusion-client/filter", "a/b", "ü~"])
SIZES = st.sampled_from(
    [AMOUNT, HALF, "bitfusion.io/gpu-percent", "bitfusion.io/gpu-8gib", "bitfusion.io/gpu", "cpu"]
)


def somewhere(inside):
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
                    "limits": somewhere(st.dictionaries(SIZES, st.sampled_from(["1", "2", "0"]) | JSON))
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
def test_objects_of_any_shape_are_borne_and_never_changed_in_place(object_):
    before = json.dumps(object_, sort_keys=True)
    bitfusion_part(object_)
    try:
        changes = notebook_changes(object_)
    except InvalidRequest:
        assert json.dumps(object_, sort_keys=True) == before
        return
    changed = apply_changes(object_, changes)
    assert json.dumps(object_, sort_keys=True) == before
    assert notebook_changes(changed).is_empty()
    assert changed.get("spec") == object_.get("spec")
    if changes.request is None and not changes.removed_labels:
        assert changed == object_
