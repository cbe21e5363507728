"""The queue on a real API server, with the manifests' rights: words, patches, a leader that is killed."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Conflict, Invalid
from bitfusion_cluster.api.paths import pod_path
from bitfusion_device_plugin.queue.pod_patches import delete_options, keep_patch, lift_patch, wait_patch
from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod, queued_pod
from bitfusion_device_plugin.queue.words import lifted, waits
from bitfusion_device_plugin.units_report.cluster_objects import cluster_objects
from bitfusion_device_plugin.units_report.cluster_report import cluster_report
from bitfusion_device_plugin.units_report.report_text import report_text
from tests.bitfusion_device_plugin.queue.pods import GATE
from tests.bitfusion_device_plugin.queue.running_queue import RunningQueue
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.manifests.queue_installed import QUEUE, asking_pod, queue_rights
from tests.support.machine import scaled
from tests.support.waiting import wait_until

NODE = "queue-on-paper"
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

    def make(self, name: str, units: int = 50, **metadata: Any) -> QueuedPod:
        made = asking_pod(name, units=units)
        made["metadata"] |= metadata
        self.cluster.client.create(self.pods, made)
        return self.seen(name)

    def make_many(self, names: Sequence[str], make: Callable[[str], object]) -> None:
        with ThreadPoolExecutor(8) as together:
            list(together.map(make, names))

    def lift_many(self, name: str, count: int) -> float:
        """Make so many pods of one unit; the seconds until all are lifted. They are gone afterwards."""
        names = [f"{name}-{number:03}" for number in range(count)]
        began = time.monotonic()
        self.make_many(names, lambda one: self.cluster.client.create(self.pods, asking_pod(one, units=1)))
        wait_until(lambda: self.are_lifted(names), lambda: f"{len(self.lifted())} of {count} lifted", 300)
        took = time.monotonic() - began
        self.clear()
        return took

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

    def clear(self, namespace: str = "") -> None:
        """The queue is the whole cluster's: what one test leaves takes units from the next."""
        pods = f"/api/v1/namespaces/{namespace or self.namespace}/pods"

        def are_gone() -> bool:
            self.cluster.client.delete(pods, gracePeriodSeconds=0)
            return not self.cluster.client.get(pods, limit=1)["items"]

        wait_until(are_gone, "no pod is left", 300, errors=(OSError,))  # thousands are more than one answer

    def conditions(self, name: str) -> list[tuple[str, str, str]]:
        found = self.pod(name)["status"]["conditions"]
        return [(one["type"], one["status"], one.get("reason", "")) for one in found]

    def told(self, name: str) -> str:
        """Reason and message of our condition."""
        found = self.pod(name)["status"].get("conditions") or []
        ours = [one for one in found if one["type"] == "bitfusion.io/PoolUnits"]
        return f"{ours[0]['reason']}: {ours[0]['message']}" if ours else ""

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
    with queue_rights(cluster) as own:
        others = units_of_others(cluster)
        cluster.client.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        try:
            resources = {"bitfusion.io/gpu": str(100 + others)}
            status = {"status": {"capacity": resources, "allocatable": resources}}
            cluster.client.merge(f"/api/v1/nodes/{NODE}/status", status)
            made = Room(cluster, own, tmp_path, others)
            yield made
            made.clear()
        finally:
            cluster.client.delete(f"/api/v1/nodes/{NODE}")


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


@pytest.mark.long
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
        wait_until(lambda: second.metric("bitfusion_queue_taken_units") == 100 + room.others)
        assert second.end() == 0
    assert most == 2


def test_what_is_deleted_and_kept_by_a_finalizer_gets_no_node_and_holds_no_units(room: Room) -> None:
    """It held them until pod garbage collection, every 20 s, had marked it Failed; which is stopped here."""
    client = room.cluster.client
    with ExitStack() as stack:
        room.replica(stack, 1).until_leading()
        room.make("p0", 100, finalizers=["example.com/mine"])
        wait_until(lambda: "p0" in room.lifted(), room.lifted, 20)
        room.cluster.controller_manager.stop()
        stack.callback(room.cluster.controller_manager.start)
        room.delete("p0")
        stack.callback(client.merge, f"{room.pods}/p0", {"metadata": {"finalizers": None}})
        binding = {"metadata": {"name": "p0"}, "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}}
        with pytest.raises(Refused, match="is being deleted, cannot be assigned to a host"):
            client.create(f"{room.pods}/p0/binding", binding)
        room.make("p1", 100)
        wait_until(lambda: "p1" in room.lifted(), lambda: room.conditions("p1"), 5)
        assert room.pod("p0")["status"]["phase"] == "Pending"


LARGE = {"example.com/large": "x" * 100_000}


def as_large_as_a_pod_may_be(room: Room, name: str) -> str:
    """A pod of one unit that is made, and has no room for a condition; what the API server says then."""
    made = asking_pod(name, units=1)
    made["metadata"]["annotations"] = LARGE
    for length in range(1_472_000, 1_400_000, -100):
        made["spec"]["containers"][0]["env"] = [{"name": "LARGE", "value": "x" * length}]
        try:
            room.cluster.client.create(room.pods, made)
        except Refused:
            continue
        condition = {"type": "x", "status": "True", "reason": "y" * 200, "message": "z" * 200}
        with pytest.raises(Refused) as refused:
            room.cluster.client.merge(f"{room.pods}/{name}/status", {"status": {"conditions": [condition]}})
        return f"{refused.value.status}: {refused.value.message}"
    raise AssertionError("no pod is small enough")


FAILED_KEEPS = 'bitfusion_queue_writes_total{result="error",step="keep"}'


@pytest.mark.long
def test_pods_as_large_as_they_may_be_hold_up_nobody(room: Room) -> None:
    """No condition fits into them, the API server says 500, and each of these was a pause for everybody."""
    large = Room(room.cluster, room.own_namespace, room.folder, room.others)
    print(f"\nto a condition of such a pod: {as_large_as_a_pod_may_be(large, 'large-00')}")
    made = large.pod("large-00")
    env = made["spec"]["containers"][0]["env"]
    for number in range(1, 12):
        another = asking_pod(f"large-{number:02}", units=1)
        another["metadata"]["annotations"] = LARGE
        another["spec"]["containers"][0]["env"] = env
        room.cluster.client.create(large.pods, another)
    try:
        with ExitStack() as stack:
            queue = room.replica(stack, 1)
            queue.until_leading()
            wait_until(lambda: queue.metric(FAILED_KEEPS), "they fail", 20)
            took = room.lift_many("small", 30)
            print(f"30 pods lifted in {took:.1f} s beside 12; {queue.metric(FAILED_KEEPS):.0f} writes failed")
            assert took < scaled(12)
    finally:
        for number in range(12):  # for its deletion there is no room either
            room.cluster.client.merge(f"{large.pods}/large-{number:02}", {"metadata": {"annotations": None}})
        large.clear()


LOST_NODE = "lost-on-paper"


@pytest.mark.long
@pytest.mark.timeout(240)
def test_units_of_a_lost_node_are_freed_when_the_node_is_deleted_as_the_condition_says(room: Room) -> None:
    client = room.cluster.client
    with ExitStack() as stack:
        queue = room.replica(stack, 1)
        queue.until_leading()
        room.make("p0", 100)
        wait_until(lambda: "p0" in room.lifted(), room.lifted, 20)
        client.create("/api/v1/nodes", {"metadata": {"name": LOST_NODE}})
        target = {"apiVersion": "v1", "kind": "Node", "name": LOST_NODE}
        client.create(f"{room.pods}/p0/binding", {"metadata": {"name": "p0"}, "target": target})
        silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-25T10:30:00Z"}
        client.merge(f"/api/v1/nodes/{LOST_NODE}/status", {"status": {"conditions": [silent]}})
        room.make("p1")
        told = wait_until(
            lambda: room.told("p1") if room.told("p1").startswith("WaitsForLostNode") else None,
            lambda: room.conditions("p1"),
            20,
        )
        print(f"\n{told}")
        assert f"100 on node {LOST_NODE}, not ready since 2026-11-25 10:30 UTC" in told
        wait_until(lambda: queue.metric("bitfusion_queue_lost_units") == 100)
        report = room.cluster.kubectl("get", "nodes,pods,resourcequotas", "--all-namespaces", "-o", "json")
        shown = report_text(cluster_report(cluster_objects(json.loads(report)["items"]), None, "none"))
        assert f"100 of them on {LOST_NODE}, not ready since 2026-11-25 10:30 UTC; if it is dead" in shown
        command = re.search(r"kubectl (delete node \S+)\.$", told)
        assert command
        room.cluster.kubectl(*command[1].split())
        deleted = time.monotonic()
        # by pod garbage collection
        wait_until(lambda: "p1" in room.lifted(), lambda: room.conditions("p1"), 150)
        print(f"lifted {time.monotonic() - deleted:.0f} s after: kubectl {command[1]}")


FLOOD = 4000


@pytest.mark.long
@pytest.mark.attack
@pytest.mark.timeout(900)
def test_thousands_of_pods_that_ask_for_nothing_cost_another_tenant_nothing(room: Room) -> None:
    """They took every lift for as long as there were any: 66 to 87 s for 4,000."""
    client = room.cluster.client
    flood = room.cluster.new_namespace(prefix="flood")
    pods = f"/api/v1/namespaces/{flood}/pods"

    def make(name: str) -> None:
        idle = asking_pod(name, units=0)
        if name.endswith("0"):
            idle["spec"]["containers"][0]["resources"] = {"limits": {"bitfusion.io/gpu": "0"}}
        client.create(pods, idle)

    with ExitStack() as stack:
        queue = room.replica(stack, 1)
        queue.until_leading()
        calm = room.lift_many("calm", 100)
        began = time.monotonic()
        with ThreadPoolExecutor(1) as beside:
            flooding = beside.submit(room.make_many, [f"f{number:04}" for number in range(FLOOD)], make)
            wait_until(lambda: client.get(pods, limit=1)["items"], "it has begun", 20)
            during = room.lift_many("during", 100)
            flooding.result()
        made = time.monotonic() - began
        waiting = room.lift_many("after", 100)
        left = sum("schedulingGates" in pod["spec"] for pod in client.get(pods)["items"])
        room.clear(flood)
        again = room.lift_many("again", 100)
        print(
            f"\n100 pods lifted in {calm:.1f} s in calm, in {during:.1f} s while {FLOOD} idle ones are made "
            f"(in {made:.0f} s, on the same cores), in {waiting:.1f} s while {left} of these wait, and in "
            f"{again:.1f} s when they are gone"
        )
        assert left > FLOOD / 2
        assert waiting < 1.5 * max(calm, again) + scaled(1)
        assert during < 4 * max(calm, again) + scaled(2)  # the API server is busy, too
        memory = queue.metric("process_resident_memory_bytes")
        assert memory
        print(f"the queue has {memory / 1e6:.0f} MB")
        assert memory < 200e6


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
