"""Reading raw objects: what is there is read, and objects of any shape raise nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    asks_for_gpus,
    containers_of,
    init_containers_of,
    is_being_deleted,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    notebook_owner,
    pod_spec_of,
    pod_template_of,
    size_limits_of,
    text,
    whole_number,
)
from bitfusion_client.request.quantities import is_zero
from tests.support.notebooks import container, form_notebook, notebook_stateful_set

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "template", "annotations", "labels", "containers", "resources", "limits"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


def test_a_notebook_is_read() -> None:
    limits = {"bitfusion.io/gpu-50": "1"}
    notebook = form_notebook("nb", limits, {"a": "b"}, {"c": "d"})
    assert metadata_of(notebook)["name"] == "nb"
    assert annotations_of(notebook)["a"] == "b"
    assert labels_of(notebook)["c"] == "d"
    (its_container,) = containers_of(pod_spec_of(notebook))
    assert size_limits_of(its_container) == limits
    assert asks_for_gpus(its_container)
    assert init_containers_of(pod_spec_of(notebook)) == []
    assert not is_being_deleted(notebook)
    assert is_being_deleted({"metadata": {"deletionTimestamp": "2026-11-21T08:00:00Z"}})


def test_sizes_are_sorted_and_other_limits_are_left_out() -> None:
    limits = {"cpu": "1", "bitfusion.io/gpu-b": "2", "bitfusion.io/gpu": "50", "bitfusion.io/gpu-a": 1}
    assert list(size_limits_of(container("nb", limits))) == ["bitfusion.io/gpu-a", "bitfusion.io/gpu-b"]
    assert not asks_for_gpus(container("nb", {"cpu": "1", "bitfusion.io/gpu": "50"}))
    for none in ("0", 0, "0m", "0e3", "0Ki"):
        assert not asks_for_gpus(container("nb", {"bitfusion.io/gpu-50": none}))
        assert asks_for_gpus(container("nb", {"bitfusion.io/gpu-50": none, "bitfusion.io/gpu-x": "1"}))


def test_the_template_of_a_stateful_set_is_read() -> None:
    stateful_set = notebook_stateful_set(form_notebook("nb"), {"a": "b"})
    assert annotations_of(pod_template_of(stateful_set)) == {"a": "b"}


@pytest.mark.parametrize(
    ("references", "owner"),
    [
        ([{"kind": "Notebook", "apiVersion": "kubeflow.org/v1", "name": "nb"}], "nb"),
        ([{"kind": "Notebook", "apiVersion": "kubeflow.org/v1beta1", "name": "nb"}], "nb"),
        ([None, {"kind": "X"}, {"kind": "Notebook", "apiVersion": "kubeflow.org/v1", "name": "nb"}], "nb"),
        ([{"kind": "Notebook", "apiVersion": "example.com/v1", "name": "nb"}], None),
        ([{"kind": "Notebook", "name": "nb"}], None),
        ([{"kind": "Deployment", "apiVersion": "apps/v1", "name": "nb"}], None),
        ({}, None),
        (None, None),
    ],
)
def test_the_owner_is_a_notebook_of_kubeflows(references: object, owner: str | None) -> None:
    found = notebook_owner({"metadata": {"ownerReferences": references}})
    assert (found["name"] if found else None) == owner


@pytest.mark.parametrize("value", [None, "", "x", 5, True, [], [1]])
def test_what_is_no_mapping_is_an_empty_one(value: object) -> None:
    assert mapping(value) == {}


def test_only_mappings_of_a_list_are_kept() -> None:
    assert mappings([1, {"a": 1}, None, []]) == [{"a": 1}]
    assert mappings({"a": 1}) == []


def test_scalars_have_a_default() -> None:
    assert (text("a"), text(5), text(None)) == ("a", "", "")
    assert [whole_number(value, 7) for value in (0, 3, True, "3", None, 1.5)] == [0, 3, 7, 7, 7, 7]


@given(JSON)
def test_objects_of_any_shape_raise_nothing(value: Any) -> None:
    data = mapping(value)
    for read in (metadata_of, annotations_of, labels_of, is_being_deleted, notebook_owner, pod_template_of):
        read(data)
    for one in (*containers_of(pod_spec_of(data)), *init_containers_of(pod_spec_of(data)), data):
        assert asks_for_gpus(one) is any(not is_zero(value) for value in size_limits_of(one).values())
