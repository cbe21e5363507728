"""Which GPUs of the cluster are shown, and who holds them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kernel_state.activity import UNKNOWN
from bitfusion_client.pod.pod_contract import ANNOTATION_STATE
from bitfusion_pods.places.gpu_nodes import GpuNode, gpu_nodes, has_gpus

GPU = "nvidia.com/gpu"


def node(name: str, gpus: str = "2", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "8", GPU: gpus}}}


def pod(name: str, where: str = "", size: str = "-n 1", phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"bitfusion.io/gpu-pod-of": "uid"},
            "annotations": {"bitfusion.io/holds": size},
            "creationTimestamp": "2026-11-26T10:00:00Z",
        },
        "spec": {"nodeName": where} if where else {},
        "status": {"phase": phase},
    }


def test_nodes_without_gpus_are_not_shown() -> None:
    found, waiting = gpu_nodes([node("b"), node("a", "0"), node("c", "1")], [], [GPU])
    assert [(each.name, each.gpus) for each in found] == [("b", 2), ("c", 1)]
    assert waiting == []


def test_holders_stand_at_their_nodes_and_the_others_wait() -> None:
    listed = [pod("one", "n2", "-n 2 -p 0.5"), pod("two", phase="Pending"), pod("old", "n2", phase="Failed")]
    (found,), waiting = gpu_nodes([node("n2")], listed, [GPU])
    assert [(each.pod, each.gpus, each.size) for each in found.holdings] == [("one", 2, "-n 2 -p 0.5")]
    assert [each.pod for each in waiting] == ["two"]


def test_a_pod_that_holds_nothing_is_no_holder() -> None:
    """Of `bitfusion health --connect`."""
    trial = pod("trial", "n2")
    del trial["metadata"]["annotations"]["bitfusion.io/holds"]
    (found,), waiting = gpu_nodes([node("n2")], [trial, pod("one", "n2")], [GPU])
    assert ([each.pod for each in found.holdings], waiting) == (["one"], [])


def test_where_nodes_may_not_be_read_those_of_the_pods_are_known() -> None:
    (found,), _ = gpu_nodes(None, [pod("one", "n2")], [GPU])
    assert (found.name, found.gpus, len(found.holdings)) == ("n2", None, 1)


def test_what_feature_discovery_tells_is_shown() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100", "nvidia.com/gpu.memory": "40960"}
    (found,), _ = gpu_nodes([node("n2", **labels)], [], [GPU])
    assert found == GpuNode("n2", 2, "NVIDIA-A100", 40960, ())


def test_other_pods_hold_nothing() -> None:
    other = pod("notebook", "n2")
    other["metadata"]["labels"] = {}
    (found,), _ = gpu_nodes([node("n2")], [other], [GPU])
    assert found.holdings == ()


@pytest.mark.parametrize("gpus", ["-1", "many", "9" * 40, "1.5"])
def test_an_odd_number_of_gpus_is_none(gpus: str) -> None:
    assert gpu_nodes([node("n2", gpus)], [], [GPU]) == ([], [])


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.lists(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANYTHING, max_size=3), max_size=3
)


@given(OBJECTS, OBJECTS)
def test_no_shape_is_an_error(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
    gpu_nodes(nodes, pods, [GPU])
    for each in nodes:
        has_gpus(each, [GPU])


@pytest.mark.parametrize(
    ("capacity", "resources", "has"),
    [
        ({"cpu": "8", GPU: "2"}, [GPU], True),
        ({"cpu": "8", "nvidia.com/mig-1g.5gb": "7"}, [GPU, "nvidia.com/mig-1g.5gb"], True),
        ({"cpu": "8"}, [GPU], False),
        ({"cpu": "8", "nvidia.com/mig-1g.5gb": "7"}, [GPU], False),
        ({"cpu": "8", GPU: "0"}, [GPU], None),  # its device plugin is being restarted
        ({"cpu": "8"}, [], None),  # by annotations or a claim
        ({}, [GPU], None),
        (None, [GPU], None),
    ],
)
def test_whether_a_node_has_gpus_at_all(capacity: Any, resources: list[str], has: bool | None) -> None:
    assert has_gpus({"status": {"capacity": capacity}}, resources) is has


IDLE = {"state": "idle", "since": 50.0, "idle_since": 40.0}


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (json.dumps(IDLE), "idle 12 min 05 s"),
        (json.dumps({"state": "running", "since": 762.0}), "running 3 s"),
        (json.dumps({**IDLE, "later": [1], "notebook": "x\x1b[2J"}), "idle 12 min 05 s"),
        (json.dumps({**IDLE, "idle_since": 9e10}), "idle 0 s"),  # who says so has another clock
    ],
)
def test_what_a_kernel_does_is_shown(told: str, shown: str) -> None:
    marked = pod("a", "n1")
    marked["metadata"].setdefault("annotations", {})[ANNOTATION_STATE] = told
    ((node,), _) = gpu_nodes(None, [marked], ["nvidia.com/gpu"])
    assert node.holdings[0].activity.text(765.0) == shown


@pytest.mark.parametrize(
    "told",
    [
        *("", "null", "[" * 900, "idle", '{"state": "flying", "since": 1}', '{"state": "idle"}'),
        *(
            '{"state": "idle", "since": NaN}',
            '{"state": "idle", "since": -1}',
            '{"state": ["idle"], "since": 1}',
        ),
        *('{"state": "idle", "since": ' + "9" * 900 + "}", json.dumps(IDLE) + " " * 1000),
        *('{"state": "idle\\u001b[2J", "since": 1}', json.dumps({**IDLE, "version": 2})),
        1,
    ],
)
def test_what_anybody_else_writes_there_is_shown_safely_or_not_at_all(told: object) -> None:
    marked = pod("a", "n1")
    marked["metadata"].setdefault("annotations", {})[ANNOTATION_STATE] = told
    ((node,), _) = gpu_nodes(None, [marked], ["nvidia.com/gpu"])
    assert node.holdings[0].activity == UNKNOWN
