"""`bitfusion-queue` as a process beside an API server that misbehaves: never more units than there are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.bitfusion_cluster.fake_api import PATCH, FakeApi
from tests.bitfusion_cluster.faults import after
from tests.bitfusion_device_plugin.queue.pods import GATE, raw_node, raw_pod
from tests.bitfusion_device_plugin.queue.running_queue import RunningQueue, kubeconfig
from tests.support.machine import scaled
from tests.support.waiting import wait_until

PODS, NODES, EVENTS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/events"
NOTEBOOKS = "/apis/kubeflow.org/v1/notebooks"
POD = "/api/v1/namespaces/a/pods/"
LEASES = "/apis/coordination.k8s.io/v1/leases"


class Room:
    """A pool of 100 units, and replicas that lift gates."""

    def __init__(self, api: FakeApi, folder: Path, stack: ExitStack) -> None:
        self.api = api
        self.folder = folder
        self._stack = stack
        self._replicas = 0
        api.put(NODES, raw_node("n1", "100"))
        api.put(NODES, raw_node("n2", "100"))

    def start(self, *options: str, leads: bool = True) -> RunningQueue:
        self._replicas += 1
        queue = self._stack.enter_context(
            RunningQueue(
                self.folder,
                kubeconfig(self.folder, self.api.url),
                *options,
                name=f"queue-{self._replicas}",
            )
        )
        if leads:
            queue.until_leading()
        return queue

    def make(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            self.api.put(PODS, pod)

    def pod(self, name: str) -> dict[str, Any]:
        found = self.api.object(PODS, "a", name)
        assert found is not None
        return found

    def lifted(self) -> list[str]:
        """The pods without our gate, by name."""
        return sorted(
            one["metadata"]["name"]
            for one in self.api.objects(PODS)
            if not any(gate["name"] == GATE for gate in one["spec"].get("schedulingGates", []))
        )

    def until_lifted(self, *names: str, limit_s: float = 15.0) -> None:
        wait_until(lambda: self.lifted() == sorted(names), self.lifted, limit_s)

    def condition(self, name: str) -> dict[str, Any]:
        found = [
            one for one in self.pod(name)["status"]["conditions"] if one["type"] == "bitfusion.io/PoolUnits"
        ]
        assert len(found) <= 1
        return found[0] if found else {}

    def until_told(self, name: str, reason: str, limit_s: float = 15.0) -> dict[str, Any]:
        wait_until(lambda: self.condition(name).get("reason") == reason, limit_s=limit_s)
        return self.condition(name)

    def events(self) -> list[tuple[str, str, str]]:
        """Type, kind and name of what it is about, reason."""
        return sorted(
            (one["type"], f"{one['involvedObject']['kind']}/{one['involvedObject']['name']}", one["reason"])
            for one in self.api.objects(EVENTS)
        )


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    api = FakeApi()
    try:
        with ExitStack() as stack:
            yield Room(api, tmp_path, stack)
    finally:
        api.close()


def test_pods_start_in_order_while_their_units_are_free_and_are_told_why_they_wait(room: Room) -> None:
    room.api.put(
        NOTEBOOKS,
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "Notebook",
            "metadata": {"namespace": "a", "name": "three"},
        },
    )
    queue = room.start()
    room.make(raw_pod("one-0", created=1), raw_pod("three-0", created=3, notebook="three"))
    room.until_lifted("one-0", "three-0")
    room.make(raw_pod("two-0", created=2))
    waits = room.until_told("two-0", "WaitsForPool")
    assert (waits["status"], waits["message"]) == (
        "False",
        "Waits for 50 units of the Bitfusion pool: 100 of 100 are taken; position 1 of 1 in the queue.",
    )
    # before the scheduler's own: Kubeflow's form shows the first one with a reason
    assert room.pod("two-0")["status"]["conditions"][0] == waits
    kept = room.pod("one-0")["status"]["conditions"][-1]
    assert (kept["status"], kept["reason"], kept["message"]) == (
        "True",
        "Lifted",
        "50 units of the Bitfusion pool are kept for it.",
    )
    wait_until(lambda: len(room.events()) == 3, room.events)
    assert room.events() == [
        ("Normal", "Notebook/three", "BitfusionLifted"),
        ("Normal", "Pod/one-0", "BitfusionLifted"),
        ("Warning", "Pod/two-0", "BitfusionWaitsForPool"),
    ]
    assert queue.metric("bitfusion_queue_pool_units") == 100
    wait_until(lambda: queue.metric("bitfusion_queue_taken_units") == 100)
    assert queue.metric("bitfusion_queue_waiting_pods") == 1
    assert queue.metric("bitfusion_queue_protected") == 1
    assert queue.metric("bitfusion_queue_unqueued_pods") == 0
    assert queue.metric('bitfusion_queue_held_units{namespace="a",notebook="three"}') == 50
    room.api.remove(PODS, "a", "one-0")
    room.until_lifted("three-0", "two-0")
    assert room.until_told("two-0", "Lifted")["status"] == "True"
    wait_until(lambda: queue.metric("bitfusion_queue_wait_seconds_count") == 3)
    wait_until(
        lambda: (queue.metric('bitfusion_queue_unit_seconds_total{namespace="a",notebook="three"}') or 0) > 0
    )
    assert queue.end() == 0
    (lease,) = room.api.objects(LEASES)
    assert lease["spec"]["holderIdentity"] == ""


def test_a_leader_that_is_killed_between_its_request_and_the_answer_is_followed(room: Room) -> None:
    room.make(*(raw_pod(f"p{number}", 50, created=number) for number in range(4)))
    killed = threading.Event()
    leaders: list[RunningQueue] = []

    def kill() -> None:
        leaders[0].kill()
        killed.set()

    now = threading.Event()
    room.api.misbehave(after(now, kill), PATCH, f"{POD}p1/status")
    leaders.append(room.start(leads=False))
    now.set()
    assert killed.wait(scaled(30))
    successor = room.start()
    room.until_lifted("p0", "p1")
    wait_until(lambda: successor.metric("bitfusion_queue_taken_units") == 100)
    room.api.remove(PODS, "a", "p0")
    room.until_lifted("p1", "p2")


def test_a_replica_that_does_not_lead_shows_nothing_and_follows_when_the_lease_is_given_back(
    room: Room,
) -> None:
    first = room.start()
    second = room.start(leads=False)
    second.until_logged("serving")
    assert (first.metric("bitfusion_queue_leader"), second.metric("bitfusion_queue_leader")) == (1, 0)
    assert second.metric("bitfusion_queue_pool_units") == 0
    assert second.ask("/readyz") == second.ask("/healthz") == "ok\n"
    assert first.end() == 0
    second.until_leading()


def test_a_port_that_is_taken_is_told_in_one_line(room: Room) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        queue = room.start(f"--monitoring-port={port}", leads=False)
        assert queue.process.wait(scaled(30)) == 1
    assert queue.log.read_text() == (
        f"bitfusion-queue: Port {port} of 127.0.0.1 is in use. What to do: stop the program that uses it, "
        "or choose another port with --monitoring-port.\n"
    )
