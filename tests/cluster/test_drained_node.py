"""A notebook is annotated while its pod is away, its node being drained: the new pod is not restarted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_cluster.watching.watched_resource import WatchLimits
from tests.cluster.api_client import MERGE_PATCH, Object
from tests.cluster.cluster import Cluster
from tests.cluster.lone_reconciler import api_port, reconciler
from tests.cluster.notebooks import Room
from tests.cluster.outages import PENDING, REQUEST, notes, told
from tests.cluster.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until, wait_until_settled

pytestmark = pytest.mark.slow


@pytest.mark.timeout(150)
def test_a_notebook_that_is_annotated_while_it_has_no_pod_is_not_restarted(
    cluster: Cluster, tmp_path: Path
) -> None:
    room = Room(cluster)
    with (
        cluster.node_stub(room.namespace),
        cluster.notebook_controller("1.7", room.namespace),
        TcpProxy(api_port(cluster)) as proxy,
        reconciler(cluster, proxy, room, tmp_path, WatchLimits()),
    ):
        room.create()
        old = room.wait_running()
        wait_until(lambda: room.stateful_set()["status"].get("readyReplicas"), limit_s=20)
        cluster.controller_manager.stop()  # which makes the next pod
        try:
            drain(room)
            wait_until(lambda: room.pod() is None, limit_s=20)
            say_that_the_pod_is_gone(room)
            room.annotate_with({REQUEST: "-n 1"})
            wait_until(lambda: PENDING in notes(room), "the pending change", 20)
        finally:
            cluster.controller_manager.start()
        new: Object = wait_until(lambda: another_pod(room, old), "the next pod", 30)
        runs_on(room, new)


def drain(room: Room) -> None:
    room.client.create(
        f"{room.pods}/mine-0/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mine-0"}},
    )


def say_that_the_pod_is_gone(room: Room) -> None:
    """What the controller that was stopped writes before it makes the next one."""
    counts = ("currentReplicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = {"replicas": 0, **dict.fromkeys(counts)}
    room.client.request("PATCH", f"{room.stateful_sets}/mine/status", {"status": status}, MERGE_PATCH)


def another_pod(room: Room, old: Object) -> Object | None:
    pod = room.pod()
    return pod if pod and pod["metadata"]["uid"] != old["metadata"]["uid"] else None


def runs_on(room: Room, pod: Object) -> None:
    """It runs, and neither is made again nor has a template that is newer."""
    room.wait_running()
    wait_until(lambda: room.stateful_set()["status"].get("readyReplicas"), limit_s=20)
    wait_until_settled(lambda: (room.stateful_set()["metadata"]["resourceVersion"], len(room.revisions())))
    assert room.running_pod()["metadata"]["uid"] == pod["metadata"]["uid"]
    assert len(room.revisions()) == 1
    assert told(room, "mine") == ["BitfusionChangePending"]
