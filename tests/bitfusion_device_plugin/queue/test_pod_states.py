"""What the queue reads of a raw pod: its state, its place, our gate among others, the scheduler's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.queue.pod_states import PodState, queued_pod
from tests.bitfusion_device_plugin.queue.pods import CONDITION, GATE, Object, raw_pod, scheduled, seen

TOLD = {"type": CONDITION, "status": "True", "reason": "Lifted", "message": "m", "lastTransitionTime": "t"}


def with_conditions(pod: Object, *conditions: Any) -> Object:
    pod["status"]["conditions"] = list(conditions)
    return pod


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (raw_pod("p"), PodState.GATED),
        (raw_pod("p", gates=("other", GATE)), PodState.GATED),
        (with_conditions(raw_pod("p"), {**TOLD, "status": "False"}), PodState.GATED),
        (with_conditions(raw_pod("p"), TOLD), PodState.KEPT),
        (raw_pod("p", gates=()), PodState.LIFTED),
        (raw_pod("p", gates=("other",)), PodState.LIFTED),
        (raw_pod("p", gates=(), node="n1"), PodState.BOUND),
        (raw_pod("p", gates=(), node="n1", phase="Running"), PodState.BOUND),
        (raw_pod("p", gates=(), node="n1", phase="Succeeded"), PodState.FINISHED),
        (raw_pod("p", phase="Failed"), PodState.FINISHED),
    ],
)
def test_the_state_of_a_pod(raw: Object, state: PodState) -> None:
    assert seen(raw).state is state


def test_a_pod_without_units_is_not_kept_unless_it_stands_at_our_gate() -> None:
    assert queued_pod(raw_pod("p", units=0, gates=())) is None
    assert queued_pod(raw_pod("p", units=0, gates=("other",))) is None
    assert seen(raw_pod("p", units=0)).units == 0
    assert queued_pod({"spec": {"containers": [{}]}}) is None


@pytest.mark.parametrize(
    ("raw", "counts"),
    [
        (raw_pod("p"), False),
        (with_conditions(raw_pod("p"), TOLD), False),
        (raw_pod("p", gates=()), False),
        (raw_pod("p", units=0), False),
        (raw_pod("p", gates=(), node="n1", phase="Running"), True),
    ],
    ids=["at its gate", "units kept", "lifted", "idle", "on a node"],
)
def test_a_pod_that_is_deleted_and_has_no_node_takes_nothing_however_long_a_finalizer_keeps_it(
    raw: Object, counts: bool
) -> None:
    raw["metadata"] |= {"deletionTimestamp": "2026-11-25T10:00:00Z", "finalizers": ["example.com/mine"]}
    assert (queued_pod(raw) is not None) is counts


def test_our_gate_is_found_among_others_and_odd_ones() -> None:
    pod = raw_pod("p")
    pod["spec"]["schedulingGates"] = ["odd", {"name": "other/gate"}, {"name": GATE}]
    found = seen(pod)
    assert (found.gate_index, found.other_gates) == (2, ("", "other/gate"))


def test_of_many_gates_of_others_a_few_are_kept_by_name() -> None:
    found = seen(raw_pod("p", gates=(*(f"g{number}" for number in range(2000)), GATE)))
    assert (found.gate_index, found.other_gates) == (2000, ("g0", "g1", "g2", "g3", "g4", "…"))


def test_of_a_long_condition_the_beginning_is_kept() -> None:
    found = seen(with_conditions(raw_pod("p"), {**TOLD, "message": "m" * 100_000, "reason": "r" * 100_000}))
    assert found.told is not None
    assert (len(found.told.message), len(found.told.reason)) == (1024, 1024)


def test_our_condition_is_found_at_its_place() -> None:
    found = seen(with_conditions(raw_pod("p"), scheduled("SchedulingGated"), None, TOLD))
    assert found.told is not None
    assert (found.conditions, found.told.index, found.told.reason, found.told.since) == (3, 2, "Lifted", "t")
    assert found.has_queued


@pytest.mark.parametrize(
    ("conditions", "spec", "no_node"),
    [
        ([scheduled("Unschedulable", "0/1 nodes: cpu")], {}, "0/1 nodes: cpu"),
        ([scheduled("Unschedulable")], {}, "Unschedulable"),
        ([scheduled("SchedulerError", "volume")], {}, "volume"),
        ([scheduled("Unschedulable", "x", "True")], {}, ""),
        ([scheduled("SchedulingGated", "gates")], {}, ""),
        ([], {}, ""),
        ([], {"schedulerName": "default-scheduler"}, ""),
        (
            [scheduled("SchedulingGated", "gates")],
            {"schedulerName": "mine"},
            "scheduler mine has not reported anything about it",
        ),
        ([scheduled("Unschedulable", "y" * 5000)], {}, "y" * 400),
    ],
)
def test_why_no_node_is_found(conditions: list[Object], spec: Object, no_node: str) -> None:
    assert seen(with_conditions(raw_pod("p", gates=(), **spec), *conditions)).no_node == no_node


def test_a_pod_at_its_gate_or_on_a_node_is_not_refused_by_a_scheduler() -> None:
    words = scheduled("Unschedulable", "cpu")
    assert seen(with_conditions(raw_pod("p"), words)).no_node == ""
    assert seen(with_conditions(raw_pod("p", gates=(), node="n"), words)).no_node == ""


@pytest.mark.parametrize(
    ("owner", "remade"),
    [
        ("apps/v1 StatefulSet", True),
        ("apps/v1 ReplicaSet", True),
        ("v1 ReplicationController", True),
        ("batch/v1 Job", False),  # counts a deleted pod as a failed one
        ("argoproj.io/v1alpha1 Workflow", False),
        ("example.org/v1 StatefulSet", False),
        (None, False),
    ],
)
def test_only_controllers_that_make_pods_anew_have_them_deleted(owner: str | None, remade: bool) -> None:
    assert seen(raw_pod("p", owner=owner)).remade is remade


def test_an_owner_that_is_no_controller_makes_nothing_anew() -> None:
    pod = raw_pod("p")
    pod["metadata"]["ownerReferences"][0]["controller"] = False
    assert not seen(pod).remade


def test_the_notebook_is_that_of_the_label_or_the_owner() -> None:
    assert seen(raw_pod("p", notebook="mine")).notebook == "mine"
    owned = raw_pod("p", notebook="mine")
    owned["metadata"]["ownerReferences"].append(
        {"kind": "Notebook", "apiVersion": "kubeflow.org/v1", "name": "n"}
    )
    assert seen(owned).notebook == "n"


def test_of_a_notebooks_name_as_long_as_a_pod_the_beginning_is_kept() -> None:
    """The API server looks at no name in an ownerReference: 400 such pods took all memory."""
    owned = raw_pod("p", units=0)
    owned["metadata"]["ownerReferences"] = [
        {"kind": "Notebook", "apiVersion": "kubeflow.org/v1", "name": "n" * 1_000_000, "uid": "u"}
    ]
    assert seen(owned).notebook == "n" * 254


def test_what_changes_of_a_running_pod_is_no_change_for_the_queue() -> None:
    before, after = (raw_pod("p", gates=(), node="n1") for _ in range(2))
    before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"] = "1", "2"
    after["status"]["conditions"].append({"type": "Ready", "status": "True"})
    assert seen(before) == seen(after)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(metadata=JSON, status=JSON, gates=JSON, conditions=JSON, owners=JSON)
def test_a_pod_of_any_shape_is_read(
    metadata: Any, status: Any, gates: Any, conditions: Any, owners: Any
) -> None:
    pod = raw_pod("p")
    pod["spec"]["schedulingGates"] = gates
    pod["status"]["conditions"] = conditions
    pod["metadata"]["ownerReferences"] = owners
    assert queued_pod(pod) is not None
    assert queued_pod({**pod, "metadata": metadata}) is not None
    assert queued_pod({**pod, "status": status}) is not None
