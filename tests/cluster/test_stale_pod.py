"""A template that was healed at once after its StatefulSet's making: the pod of the old one is made again.

The StatefulSet's first status then names the new revision twice, though the pod is of the old one. Real
notebook controllers of Kubeflow 1.6 to 1.8 brought it about in 15 of 183 notebooks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bitfusion_cluster.watching.watched_resource import WatchLimits
from tests.cluster.api_client import MERGE_PATCH, Object
from tests.cluster.cluster import Cluster
from tests.cluster.lone_reconciler import api_port, reconciler
from tests.cluster.notebooks import Room
from tests.cluster.outages import CLIENT, LABEL, TWO, ours_of, told
from tests.cluster.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.timeout(120)
def test_the_pod_of_a_template_that_was_healed_too_early_is_remade(cluster: Cluster, tmp_path: Path) -> None:
    room = Room(cluster)
    with (
        cluster.node_stub(room.namespace),
        cluster.notebook_controller("1.7", room.namespace),
    ):
        room.create(limits=TWO)
        old: Object = wait_until(lambda: room.pod(), "the pod that no node can take", 20)
        wait_until(lambda: room.stateful_set()["status"].get("currentRevision"), "the old revision", 20)
        heal_by_hand(room)
        say_both_revisions_are_new(room)
        with (
            TcpProxy(api_port(cluster)) as proxy,
            reconciler(cluster, proxy, room, tmp_path, WatchLimits()),
        ):
            pod = room.wait_running()
    assert pod["metadata"]["uid"] != old["metadata"]["uid"]
    assert ours_of(pod["metadata"]["annotations"]) == CLIENT
    assert told(room, "mine") == ["BitfusionPodRemade"]


def heal_by_hand(room: Room) -> None:
    """Write what the reconciler writes, but leave the pod."""
    labels = {"metadata": {"labels": {LABEL: "true"}, "annotations": CLIENT}}
    room.client.merge(f"{room.notebooks}/mine", labels)
    template: Any = {"spec": {"template": {"metadata": {"annotations": CLIENT}}}}
    room.client.merge(f"{room.stateful_sets}/mine", template)


def say_both_revisions_are_new(room: Room) -> None:
    def status() -> Object | None:
        found: Object = room.stateful_set()["status"]
        return found if found["currentRevision"] != found["updateRevision"] else None

    updated = wait_until(status, "the new revision", 20)["updateRevision"]
    body = {"status": {"currentRevision": updated}}
    path = f"{room.stateful_sets}/mine/status"
    room.client.request("PATCH", path, body, MERGE_PATCH)
    found = room.stateful_set()["status"]
    assert found["currentRevision"] == found["updateRevision"] == updated
    assert found["replicas"] == 1
    assert not found.get("updatedReplicas")
