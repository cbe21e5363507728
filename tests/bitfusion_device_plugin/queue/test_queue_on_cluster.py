"""The queue on a real API server, with the manifests' rights: words, patches, a leader that is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Conflict, Invalid
from bitfusion_cluster.api.paths import pod_path
from bitfusion_device_plugin.queue.pod_patches import delete_options, keep_patch, lift_patch, wait_patch
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod, queued_pod
from bitfusion_device_plugin.queue.words import lifted, waits
from tests.bitfusion_device_plugin.queue.pods import GATE
from tests.bitfusion_device_plugin.queue.running_queue import RunningQueue
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.manifests.queue_installed import QUEUE, asking_pod, queue_rights
from tests.support.waiting import wait_until

OTHER_UID = "00000000-0000-0000-0000-000000000000"
NOW = 1_800_000_000.0


class Room:
    """A pool of 100 units on a node that exists on paper, a user's namespace, and the queue's account."""

    def __init__(self, cluster: Cluster, own_namespace: str, folder: Path, others: int) -> None:
        self.cluster = cluster
        self.others = others
        self.own_namespace = own_namespace
        self.folder = folder
        self.namespace = cluster.new_namespace(prefix="queued")
        self.kubeconfig = cluster.service_account_kubeconfig(own_namespace, QUEUE)
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"

    def make(self, name: str, units: int = 50) -> QueuedPod:
        self.cluster.client.create(self.pods, asking_pod(name, units=units))
        return self.seen(name)

    def pod(self, name: str) -> Object:
        return self.cluster.client.get(f"{self.pods}/{name}")

    def seen(self, name: str) -> QueuedPod:
        found = queued_pod(self.pod(name))
        assert found is not None
        return found

    def delete(self, name: str) -> None:
        self.cluster.client.request("DELETE", f"{self.pods}/{name}", query={"gracePeriodSeconds": 0})

    def finish(self, name: str) -> None:
        """As a kubelet says that its containers have ended."""
        self.cluster.client.merge(f"{self.pods}/{name}/status", {"status": {"phase": "Succeeded"}})

    def clear(self) -> None:
        """The queue is the whole cluster's: what one test leaves takes units from the next."""
        for pod in self.cluster.client.get(self.pods)["items"]:
            self.delete(pod["metadata"]["name"])

    def conditions(self, name: str) -> list[tuple[str, str, str]]:
        found = self.pod(name)["status"]["conditions"]
        return [(one["type"], one["status"], one.get("reason", "")) for one in found]

    def lifted(self) -> list[str]:
        return sorted(
            one["metadata"]["name"]
            for one in self.cluster.client.get(self.pods)["items"]
            if not one["spec"].get("schedulingGates") and one["status"]["phase"] != "Succeeded"
        )

    def are_lifted(self, names: list[str]) -> bool:
        return self.lifted() == names

    def replica(self, stack: ExitStack, number: int) -> RunningQueue:
        return stack.enter_context(
            RunningQueue(self.folder, self.kubeconfig, name=f"replica-{number}", namespace=self.own_namespace)
        )


def units_of_others(cluster: Cluster) -> int:
    """Of pods that other tests have left in the same cluster: the queue counts them, too."""
    found = map(queued_pod, cluster.client.get("/api/v1/pods")["items"])
    return sum(pod.units for pod in found if pod is not None and pod.state is not PodState.FINISHED)


@pytest.fixture
def room(cluster: Cluster, tmp_path: Path) -> Iterator[Room]:
    node = "queue-on-paper"
    with queue_rights(cluster) as own:
        others = units_of_others(cluster)
        cluster.client.create("/api/v1/nodes", {"metadata": {"name": node}})
        try:
            resources = {"bitfusion.io/gpu": str(100 + others)}
            status = {"status": {"capacity": resources, "allocatable": resources}}
            cluster.client.merge(f"/api/v1/nodes/{node}/status", status)
            made = Room(cluster, own, tmp_path, others)
            yield made
            made.clear()
        finally:
            cluster.client.delete(f"/api/v1/nodes/{node}")


@pytest.fixture
def api(room: Room) -> Iterator[KubernetesApi]:
    """The queue's account."""
    made = room.cluster.api(room.kubeconfig)
    yield made
    made.close()


def test_units_are_kept_and_the_gate_is_lifted_only_of_the_pod_as_it_was_seen(
    room: Room, api: KubernetesApi
) -> None:
    first = room.make("p")
    path, status = pod_path(*first.key), f"{pod_path(*first.key)}/status"
    waiting = waits(50, 100, 100, 1, 1, 50)
    assert first.state is PodState.GATED
    api.patch(status, wait_patch(first, waiting, NOW))
    # before the scheduler's own, where the form looks first
    assert room.conditions("p")[0] == ("bitfusion.io/PoolUnits", "False", "WaitsForPool")
    with pytest.raises(Conflict):
        api.patch(status, keep_patch(first, lifted(50), NOW))  # it has changed since
    seen = room.seen("p")
    for wrong in (replace(seen, uid=OTHER_UID), replace(seen, resource_version="1")):
        with pytest.raises(Conflict):
            api.patch(path, lift_patch(wrong))
    kept = queued_pod(api.patch(status, keep_patch(seen, lifted(50), NOW)))
    assert kept is not None
    assert kept.state is PodState.KEPT
    assert room.conditions("p")[-1] == ("bitfusion.io/PoolUnits", "True", "Lifted")
    with pytest.raises(Conflict):
        api.patch(path, lift_patch(seen))
    left = queued_pod(api.patch(path, lift_patch(kept)))
    assert left is not None
    assert (left.state, left.has_queued) == (PodState.LIFTED, True)
    with pytest.raises(Conflict):
        api.patch(path, lift_patch(kept))  # once more
    with pytest.raises(Conflict):
        api.delete(path, delete_options(kept))
    api.delete(path, delete_options(room.seen("p")))


def test_a_gate_cannot_be_set_again(room: Room, api: KubernetesApi) -> None:
    path = pod_path(room.namespace, "p")
    kept = api.patch(f"{path}/status", keep_patch(room.make("p"), lifted(50), NOW))
    seen = queued_pod(kept)
    assert seen is not None
    api.patch(path, lift_patch(seen))
    admin = room.cluster.api()
    with pytest.raises(Invalid, match="only deletion is allowed"):
        admin.patch(path, [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}])
    admin.close()


def test_a_leader_that_is_killed_is_followed_and_the_pool_is_never_sold_twice(room: Room) -> None:
    most = 0
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, len(room.lifted()))

    watcher = threading.Thread(target=watch)
    with ExitStack() as stack:
        first = room.replica(stack, 1)
        first.until_leading()
        second = room.replica(stack, 2)
        second.until_logged("serving")
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(over.set)
        for number in range(6):
            room.make(f"p{number}")
        wait_until(lambda: room.lifted() == ["p0", "p1"], room.lifted, 20)
        room.delete("p0")
        first.kill()
        second.until_leading()
        wait_until(lambda: room.lifted() == ["p1", "p2"], room.lifted, 20)
        for gone, there in (("p1", ["p2", "p3"]), ("p2", ["p3", "p4"])):
            room.delete(gone)
            wait_until(partial(room.are_lifted, there), room.lifted, 20)
        room.finish("p3")
        wait_until(lambda: "p5" in room.lifted(), room.lifted, 20)
        assert second.metric("bitfusion_queue_taken_units") == 100 + room.others
        assert second.end() == 0
    assert most == 2


@pytest.mark.long
def test_while_the_api_server_is_killed_nothing_is_sold_and_afterwards_it_goes_on(room: Room) -> None:
    with ExitStack() as stack:
        queue = room.replica(stack, 1)
        queue.until_leading()
        for number in range(3):
            room.make(f"p{number}")
        wait_until(lambda: room.lifted() == ["p0", "p1"], room.lifted, 20)
        room.cluster.apiserver.kill()
        room.cluster.apiserver.start()
        room.delete("p1")
        wait_until(lambda: room.lifted() == ["p0", "p2"], room.lifted, 60)
