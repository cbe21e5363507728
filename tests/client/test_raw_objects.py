"""Readers of raw objects accept any shape and answer as if what has the wrong type were absent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client import raw_objects
from tests.support.notebooks import bare_notebook, container, notebook_stateful_set

HALF = "bitfusion.io/gpu-50"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "template", "containers", "resources", "limits", "kind"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


def test_parts_of_a_notebook() -> None:
    notebook = bare_notebook(
        container(limits={"cpu": "1", HALF: "2"}),
        container("side"),
        init_containers=[container("init")],
        annotations={"a": "b"},
        labels={"c": "d"},
    )
    pod = raw_objects.pod_spec_of(notebook)
    asking, side = raw_objects.containers_of(pod)
    assert (raw_objects.annotations_of(notebook), raw_objects.labels_of(notebook)) == ({"a": "b"}, {"c": "d"})
    assert [one["name"] for one in raw_objects.init_containers_of(pod)] == ["init"]
    assert raw_objects.size_limits_of(asking) == {HALF: "2"}
    assert [raw_objects.asks_for_gpus(one) for one in (asking, side)] == [True, False]
    assert not raw_objects.is_being_deleted(notebook)
    assert raw_objects.is_being_deleted({"metadata": {"deletionTimestamp": "now"}})


def test_the_owner_is_a_notebook_of_kubeflow_in_any_version() -> None:
    stateful_set = notebook_stateful_set(bare_notebook(container()))
    owner = raw_objects.notebook_owner(stateful_set)
    assert owner is not None
    assert owner["name"] == "nb"
    for other in (
        {"apiVersion": "kubeflow.org.example/v1", "kind": "Notebook"},
        {"apiVersion": "kubeflow.org/v1", "kind": "Tensorboard"},
        {"apiVersion": ["kubeflow.org/v1"], "kind": "Notebook"},
    ):
        assert raw_objects.notebook_owner({"metadata": {"ownerReferences": [other]}}) is None


@pytest.mark.parametrize("wrong", [None, [], "x", 1, True])
def test_what_has_the_wrong_type_counts_as_absent(wrong: Any) -> None:
    assert raw_objects.metadata_of({"metadata": wrong}) == {}
    assert raw_objects.pod_spec_of({"spec": {"template": wrong}}) == {}
    assert raw_objects.containers_of({"containers": [wrong, {}]}) == [{}]
    assert raw_objects.size_limits_of({"resources": {"limits": wrong}}) == {}


def test_texts_and_numbers_of_the_wrong_type_have_their_default() -> None:
    assert [raw_objects.text(value) for value in ("x", None, 1, ["x"])] == ["x", "", "", ""]
    assert [raw_objects.whole_number(value, 7) for value in (1, True, "1", 1.0, None)] == [1, 7, 7, 7, 7]


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "resources", "containers"]), JSON))
def test_no_shape_crashes_a_reader(data: dict[str, Any]) -> None:
    raw_objects.annotations_of(data)
    raw_objects.labels_of(data)
    raw_objects.notebook_owner(data)
    pod = raw_objects.pod_spec_of(data)
    for one in (*raw_objects.containers_of(pod), *raw_objects.init_containers_of(pod), data):
        assert raw_objects.asks_for_gpus(one) == bool(raw_objects.size_limits_of(one))
