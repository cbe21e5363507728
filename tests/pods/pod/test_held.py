"""What the GPU pods of a notebook hold."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.gpu_pods.budget import fits
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.pod.held import held_gpus
from tests.pods.pod.notebook_pods import UID, made

HALF = GpuRequest(1, 0.5)


def pod(name: str = "a", holds: Any = "-n 1 -p 0.5", of: str = UID, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"bitfusion.io/gpu-pod-of": of},
            "annotations": {"bitfusion.io/holds": holds},
        },
        "status": {"phase": phase},
    }


def test_pods_of_this_notebook_that_are_not_over_count() -> None:
    pods = [
        pod("a"),
        pod("pending", phase="Pending"),
        pod("over", phase="Succeeded"),
        pod("failed", phase="Failed"),
        pod("others", of="another"),
        pod("mine"),
    ]
    found = held_gpus(pods, UID, without="mine")
    assert found.requests == (("a", HALF), ("pending", HALF))
    assert found.held == [HALF, HALF]
    assert held_gpus(pods, "").requests == ()


def test_one_that_is_being_deleted_counts_until_it_is_gone() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-26T12:00:00Z"
    assert held_gpus([leaving], UID).held == [HALF]


@pytest.mark.parametrize("holds", [None, "", " ", "nonsense", "-n 0", 7, "-n 1 " * 4000])
def test_what_cannot_be_read_counts_as_nothing_and_is_told(holds: Any) -> None:
    found = held_gpus([pod("odd", holds), pod("b")], UID)
    assert found.unreadable == ("odd",)
    assert found.requests == (("b", HALF),)


@pytest.mark.parametrize("odd", [7, None, {}, {"metadata": 7}, {"metadata": {"labels": []}}])
def test_objects_of_any_shape_are_passed_over(odd: Any) -> None:
    assert held_gpus([odd], UID).requests == ()


def test_a_pod_that_was_made_is_read_back() -> None:
    made_pod = made(request=GpuRequest(2))
    assert held_gpus([made_pod], UID).held == [GpuRequest(2)]
    assert not fits(GpuRequest(2), [GpuRequest(2)], GpuRequest(1))
