"""What is read from raw nodes, pods and quotas, of any shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.names import QUEUE_CONDITION, QUEUE_GATE, RESOURCE_UNITS
from bitfusion_device_plugin.units_report.cluster_objects import (
    ENDS,
    GATED,
    KEPT,
    LOST,
    OTHER_GATE,
    RUNS,
    STARTS,
    UNPLACED,
    AskingPod,
    Quota,
    asking_pod,
    cluster_objects,
    only_what_is_read,
)
from tests.bitfusion_device_plugin.units_report.raw import gated, node, pod, queue_pod, quota


def unplaced(message: str, status: str = "False") -> dict[str, Any]:
    raw = pod(node="", phase="Pending")
    raw["status"]["conditions"].append(
        {"type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message}
    )
    return raw


def kept() -> dict[str, Any]:
    """Its units are kept, and its gate is lifted by the next request."""
    raw = gated(message=None)
    raw["status"]["conditions"] = [{"type": QUEUE_CONDITION, "status": "True", "reason": "Lifted"}]
    return raw


@pytest.mark.parametrize(
    ("raw", "state", "why", "counts"),
    [
        (pod(), RUNS, "", True),
        (pod(phase="Pending"), STARTS, "", True),
        (pod(deletionTimestamp="2026-11-25T02:00:00Z"), ENDS, "", True),
        (gated(message="position 1 of 2"), GATED, "position 1 of 2", False),
        (pod(node="", phase="Pending", gates=("a.example/x",)), OTHER_GATE, "a.example/x", False),
        (pod(node="", phase="Pending", gates=("a.example/x", QUEUE_GATE)), GATED, "", False),
        (kept(), KEPT, "", True),
        (unplaced("2 Insufficient cpu."), UNPLACED, "2 Insufficient cpu.", True),
        (unplaced("was placed", status="True"), UNPLACED, "", True),
    ],
)  # fmt: skip
def test_the_state_of_a_pod(raw: dict[str, Any], state: str, why: str, counts: bool) -> None:
    found = asking_pod(raw)
    assert found is not None
    assert (found.state, found.why, found.counts) == (state, why, counts)


@pytest.mark.parametrize(
    "raw",
    [
        *(pod(phase="Succeeded"), pod(phase="Failed"), pod(units="0"), pod(units=[]), {"kind": "Pod"}, {}),
        gated(deletionTimestamp="2026-11-25T02:00:00Z"),  # it gets no node any more
    ],
    ids=["succeeded", "failed", "no units", "odd units", "empty pod", "empty", "deleted at its gate"],
)
def test_what_counts_nothing_is_not_shown(raw: dict[str, Any]) -> None:
    assert asking_pod(raw) is None


def test_a_pod_without_the_label_of_a_notebook_has_none() -> None:
    found = asking_pod(pod(name="train", notebook="", units=30))
    assert found == AskingPod("team-a", "train", "", 30, RUNS, "n1")


def taken_away() -> dict[str, Any]:
    """Somebody else has removed the gate of a pod that waited."""
    raw = pod(message="none")
    raw["status"]["conditions"] = [{"type": QUEUE_CONDITION, "status": "False", "reason": "WaitsForPool"}]
    return raw


@pytest.mark.parametrize(
    ("raw", "was_gated"),
    [(pod(), True), (gated(), True), (kept(), True), (pod(message="none"), False), (taken_away(), False)],
    ids=["lifted", "gated", "kept", "never", "taken away by somebody"],
)
def test_whether_the_queue_held_it_back(raw: dict[str, Any], was_gated: bool) -> None:
    found = asking_pod(raw)
    assert found is not None
    assert found.was_gated is was_gated


def test_control_characters_of_a_message_reach_no_terminal() -> None:
    found = asking_pod(gated(message="\x1b[2Jgone\nnext " + "x" * 1000))
    assert found is not None
    assert found.why.startswith("\\x1b[2Jgone next x")
    assert len(found.why) == 300


def test_the_objects_are_sorted_and_of_the_kinds_that_concern_the_pool() -> None:
    found = cluster_objects(
        [
            {"kind": "Secret", "metadata": {"name": "s"}},
            node("n2", None),
            node("n1", "5k"),
            pod("b-0", notebook="b"),
            pod("a-0", notebook="a"),
            quota(hard="1k", used=50),
            quota(namespace="a", hard=10, scopes=["BestEffort"]),
            {"kind": "ResourceQuota", "spec": {"hard": {"cpu": "4"}}},
            queue_pod(),
            7,
        ]
    )
    assert [(one.name, one.units) for one in found.nodes] == [("n1", 5000), ("n2", 0)]
    assert [one.notebook for one in found.pods] == ["a", "b"]
    assert found.quotas == (Quota("a", "gpus", 50, 10, True), Quota("team-a", "gpus", 50, 1000))
    assert found.queues == ("kubeflow/bitfusion-queue-7d9f",)


def test_a_node_that_is_not_ready_offers_nothing_and_nobody_knows_of_its_pods() -> None:
    found = cluster_objects([node(ready="Unknown"), node("n2"), pod(), pod("b-0", notebook="b", node="n2")])
    assert [(one.name, one.units, one.not_ready_since) for one in found.nodes] == [
        ("n1", 0, "2026-11-25T10:30:00Z"),
        ("n2", 200, None),
    ]
    assert [(one.node, one.state, one.counts) for one in found.pods] == [
        ("n2", RUNS, True),
        ("n1", LOST, True),
    ]
    assert cluster_objects([node(ready="False"), pod(deletionTimestamp="now")]).pods[0].state == LOST


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("bitfusion.io/gpu", ("bitfusion.io/gpu",)),
        ("limits.bitfusion.io/gpu", ("limits.bitfusion.io/gpu",)),
        ("requests.bitfusion.io/gpu-50", ("requests.bitfusion.io/gpu-50",)),
        ("requests.nvidia.com/gpu", None),
    ],
)
def test_quotas_that_limit_nothing_are_seen(key: str, wrong: tuple[str, ...] | None) -> None:
    text = json.dumps([quota(key=key)])
    found = cluster_objects(json.loads(text, object_hook=only_what_is_read)).quotas
    assert found == (() if wrong is None else (Quota("team-a", "gpus", 0, None, wrong_keys=wrong),))


@pytest.mark.parametrize(
    "raw", [queue_pod(ready="False"), queue_pod(account="default"), queue_pod(deletionTimestamp="now")]
)
def test_a_queue_that_is_not_ready_is_none(raw: dict[str, Any]) -> None:
    assert cluster_objects([raw]).queues == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["kind", "metadata", "spec", "status", "containers", "conditions", "name",
                         "schedulingGates", "hard", "used", "allocatable", "resources", "limits",
                         RESOURCE_UNITS, f"requests.{RESOURCE_UNITS}", "type", "labels"]),
        inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


def test_the_only_namespace_is_that_of_all_pods_whatever_they_ask_for() -> None:
    assert cluster_objects([node(), pod(), pod("b-0", units="0")]).only_namespace == "team-a"
    assert cluster_objects([node(), pod(), pod("b-0", "kube-system", "0")]).only_namespace == ""
    assert cluster_objects([node()]).only_namespace == ""


@given(st.lists(JSON, max_size=3))
def test_what_a_parser_leaves_out_is_never_looked_at(items: list[Any]) -> None:
    whole = [*items, node(), pod(), gated(message="x"), quota(scopeSelector={"matchExpressions": [{"a": 1}]})]
    text = json.dumps([*whole, queue_pod(), pod(node="", phase="Pending", gates=("other",))])
    pruned = json.loads(text, object_hook=only_what_is_read)
    assert cluster_objects(pruned) == cluster_objects(json.loads(text))


@given(st.lists(st.tuples(st.sampled_from(["Pod", "Node", "ResourceQuota"]), JSON), max_size=4))
def test_no_shape_of_an_object_is_an_error(objects: list[tuple[str, Any]]) -> None:
    cluster_objects({**raw, "kind": kind} if isinstance(raw, dict) else raw for kind, raw in objects)
