"""Whether the pool can be sold twice, and the words in which it is told."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_pool.admin.kubernetes.cluster_objects import cluster_objects
from bitfusion_pool.admin.kubernetes.protection import newest_version, unprotected
from tests.pool.admin.kubernetes.raw import gated, node, pod, queue_pod

NO_QUEUE = "no pod of the account bitfusion-queue is ready, so nobody lifts gates in order"
OLD = "this is Kubernetes 1.26 by its nodes, and there are no scheduling gates below 1.27"


@pytest.mark.parametrize(
    ("items", "reasons"),
    [
        ([node(), queue_pod(), pod(), gated()], ()),
        ([node(kubelet="v1.27.0"), queue_pod()], ()),
        ([node(kubelet="v1.26.9"), node("n2", kubelet="v1.28.1+k3s1"), queue_pod()], ()),
        ([node(kubelet="what"), queue_pod()], ()),
        ([node(kubelet="v1.26.15"), queue_pod()], (OLD,)),
        ([node()], (NO_QUEUE,)),
        ([node(kubelet="v1.26.15")], (OLD, NO_QUEUE)),
        ([node(), queue_pod(), pod(message="")], ("the queue never lifted the gate of team-a/mnist-0",)),
        (
            [node(), queue_pod(), *(pod(f"p-{n}", message="none") for n in range(5))],
            ("the queue never lifted the gate of team-a/p-0, team-a/p-1, team-a/p-2 and 2 more",),
        ),
    ],
)
def test_why_it_can_be_sold_twice(items: list[Any], reasons: tuple[str, ...]) -> None:
    assert unprotected(cluster_objects(items)) == reasons


@pytest.mark.parametrize(
    ("versions", "newest"),
    [([], None), (["", "x", "1"], None), (["v1.9.1", "v1.10.0"], (1, 10)), (["1.34"], (1, 34))],
)
def test_the_newest_of_versions(versions: list[str], newest: tuple[int, int] | None) -> None:
    assert newest_version(versions) == newest
