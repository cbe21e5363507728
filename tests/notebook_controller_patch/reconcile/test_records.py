"""The trimmed records: what counts as a change, and objects of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache
from notebook_controller_patch.reconcile.records import pod_record, statefulset_record
from tests.notebook_controller_patch.reconcile.objects import (
    CLIENT,
    LABEL,
    REQUEST,
    Object,
    admitted,
    notebook,
    pod,
    statefulset,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def replaced(data: Any, path: tuple[Any, ...], value: object) -> Any:
    """A copy with the value at the path; the last step may be new."""
    key, rest = path[0], path[1:]
    copy = list(data) if isinstance(data, list) else dict(data)
    copy[key] = replaced(copy[key], rest, value) if rest else value
    return copy


PLACES = [
    ("metadata",),
    ("metadata", "annotations"),
    ("metadata", "labels"),
    ("metadata", "ownerReferences"),
    ("metadata", "name"),
    ("metadata", "uid"),
    ("spec",),
    ("spec", "template"),
    ("spec", "template", "spec"),
    ("spec", "template", "spec", "containers"),
    ("spec", "replicas"),
    ("status",),
]


@given(st.sampled_from(PLACES), JSON)
def test_any_json_at_any_place_is_tolerated(place: tuple[str, ...], value: object) -> None:
    of = admitted()
    for read, data in (
        (notebook_record, of),
        (statefulset_record, statefulset(of, annotations=CLIENT)),
        (pod_record, pod(statefulset(of))),
    ):
        try:
            broken = replaced(data, place, value)
        except KeyError:
            continue
        record = read(broken)
        if isinstance(record, NotebookRecord):
            assert record == record
            record.to_object()


@pytest.mark.parametrize("field", ["name", "uid"])
@pytest.mark.parametrize("value", [None, "", 7])
def test_what_has_no_name_or_uid_is_no_object(field: str, value: object) -> None:
    of = admitted()
    reads: list[tuple[Callable[[Object], object], Object]] = [
        (notebook_record, of),
        (statefulset_record, statefulset(of)),
        (pod_record, pod(statefulset(of))),
    ]
    for read, data in reads:
        assert read(data) is not None
        assert read(changed(data, **{field: value})) is None


def changed(data: Object, **more: Any) -> Object:
    return {**data, "metadata": {**data["metadata"], **more}}


@pytest.mark.parametrize(
    ("after", "counts"),
    [
        (changed(admitted(), resourceVersion="9"), False),
        (changed(admitted(), generation=9, managedFields=[{}]), False),
        (admitted(annotations={"notebooks.kubeflow.org/last-activity": "2026"}), False),
        (changed(admitted(), labels={LABEL: "true", "other": "x"}), False),
        ({**admitted(), "status": {"readyReplicas": 1}}, False),
        (admitted(annotations={REQUEST: "-n 1"}), True),
        (admitted(annotations={"kubeflow-resource-stopped": "2026"}), False),
        (admitted(limits={"bitfusion.io/gpu-50": "1"}), True),
        (changed(admitted(), labels={}), True),
        (changed(admitted(), uid="another"), True),
        (changed(admitted(), deletionTimestamp="2026"), True),
    ],
)
def test_only_what_decides_is_a_change(after: Object, counts: bool) -> None:
    told: list[object] = []
    cache: Cache[NotebookRecord] = Cache(lambda old, new: told.append((old, new)))
    for data in (admitted(), after):
        record = notebook_record(data)
        assert record is not None
        cache.put(record)
    assert len(told) == 1 + counts


def test_limits_of_others_are_not_kept() -> None:
    record = notebook_record(notebook(limits={"nvidia.com/gpu": "1", "bitfusion.io/gpu-50": "1"}))
    assert record is not None
    assert record.containers[0].limits == (("bitfusion.io/gpu-50", "1"),)


def test_equal_annotations_are_kept_once() -> None:
    first, second = notebook_record(admitted("a")), notebook_record(admitted("b"))
    assert first is not None
    assert second is not None
    assert first.annotations is second.annotations


@pytest.mark.parametrize(
    "owners",
    [
        None,
        [],
        [{"kind": "Notebook", "apiVersion": "example.com/v1", "name": "nb", "uid": "u"}],
        [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "nb", "uid": "u"}],
    ],
)
def test_a_statefulset_of_nobody_or_of_others_is_not_kept(owners: object) -> None:
    data = statefulset(admitted())
    data["metadata"]["ownerReferences"] = owners
    assert statefulset_record(data) is None


@pytest.mark.parametrize(("replicas", "expected"), [(None, 1), (0, 0), (1, 1), ("x", 1), (True, 1)])
def test_replicas_that_are_absent_are_one(replicas: object, expected: int) -> None:
    data = statefulset(admitted())
    data["spec"]["replicas"] = replicas
    record = statefulset_record(data)
    assert record is not None
    assert record.replicas == expected


def test_of_an_owner_as_long_as_an_object_the_beginning_is_kept() -> None:
    """The API server looks at no name or uid in an ownerReference."""
    data = statefulset(admitted())
    (owner,) = data["metadata"]["ownerReferences"]
    owner |= {"name": "n" * 1_000_000, "uid": "u" * 1_000_000}
    record = statefulset_record(data)
    assert record is not None
    assert (len(record.owner_name), len(record.owner_uid)) == (254, 254)
