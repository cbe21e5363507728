"""Two kubelets that both report one pool of 100 units, and notebooks of 50: it is never sold twice.

pytest -m long -s tests/bitfusion_device_plugin/queue/test_queue_on_two_nodes.py
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.bitfusion_device_plugin.queue.on_two_nodes import POOL, STUCK_AFTER_S, TwoNodes, queued_cluster
from tests.bitfusion_device_plugin.queue.units_over_time import Peak, UnitsOverTime
from tests.cluster.api_client import Object
from tests.cluster.guide import QUOTAS, blocks
from tests.cluster.node import Node
from tests.cluster.units import allocated, wait_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NOTEBOOKS = 20
WAITING = {"Lifted": 2, "WaitsForPool": NOTEBOOKS - 2}
APISERVER_KILLED_AFTER = 6  # notebooks that have run
LEADER_KILLED_AFTER = 12
TAKEN = "Waits for 50 units of the Bitfusion pool: 100 of 100 are taken; position 1 of 1 in the queue."


@pytest.fixture(scope="module")
def installed(two_nodes: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    with queued_cluster(two_nodes, tmp_path_factory.mktemp("queue")) as found:
        yield found


@pytest.fixture
def queued(installed: TwoNodes) -> Iterator[TwoNodes]:
    """With a leader, and without notebooks before and after a test."""
    installed.leader()
    yield installed
    installed.clear()


def test_the_third_of_three_halves_waits_for_the_pool_and_starts_when_one_stops(queued: TwoNodes) -> None:
    with UnitsOverTime(queued.cluster) as units:
        for name in ("first", "second"):
            queued.make(name)
            queued.wait_running(name)
        queued.make("third")
        wait_until(
            lambda: (queued.condition("third") or {}).get("message") == TAKEN,
            lambda: queued.told("third"),
            30,
        )
        condition = queued.condition("third")
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "WaitsForPool")
        wait_until(lambda: queued.events("third").get("BitfusionWaitsForPool") == TAKEN, "the Event", 30)
        pod = queued.room.running_pod("third")
        assert pod["spec"]["schedulingGates"] == [{"name": "bitfusion.io/queue"}]
        assert "nodeName" not in pod["spec"]

        queued.stop("first")
        wait_until(lambda: queued.room.pod("first") is None, "the first is gone", 60)
        gone = time.monotonic()
        queued.wait_running("third")
        print(f"\nthe third runs {time.monotonic() - gone:.1f} s after the pod of the first was gone")
        condition = queued.condition("third")
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("True", "Lifted")
        nodes = {queued.room.running_pod(name)["spec"]["nodeName"] for name in ("second", "third")}
        print(f"on {' and '.join(sorted(nodes))}; most units at once: {units.peak}")
        assert units.peak.lifted == POOL


def test_twenty_at_once_never_exceed_the_pool_whoever_is_killed(queued: TwoNodes) -> None:
    names = [f"nb-{number:02}" for number in range(NOTEBOOKS)]
    done: list[str] = []
    killed: list[str] = []
    began = time.monotonic()
    with UnitsOverTime(queued.cluster) as units:
        with queued.no_scheduler():
            # What was let through has no node yet, and counts all the same, for the next leader, too.
            with ThreadPoolExecutor(8) as together:
                list(together.map(queued.make, names))
            wait_until(lambda: queued.reasons() == WAITING, lambda: f"told: {queued.reasons()}", 60)
            kill_the_leader(queued)
            killed.append("leader before any has a node")
            late = "late"
            queued.make(late)
            wait_until(lambda: queued.reasons()["WaitsForPool"] == NOTEBOOKS - 1, "the late one is told", 60)
            assert units.peak == Peak(lifted=POOL, bound=0)
        names.append(late)
        while len(done) < len(names):
            (name, *_) = wait_until(
                lambda: [each for each in queued.running() if each not in done],
                lambda: queued.told(next(each for each in names if each not in done)),
                120,
            )
            done.append(name)
            if len(done) == LEADER_KILLED_AFTER:
                kill_the_leader(queued, partial(queued.stop, name))
                killed.append(f"leader after {len(done)}")
                continue
            if len(done) == APISERVER_KILLED_AFTER:
                queued.cluster.apiserver.kill()
                queued.cluster.apiserver.start()
                killed.append(f"API server after {len(done)}")
            queued.stop(name)
        took = time.monotonic() - began
        print(
            f"\n{len(done)} notebooks of 50 units in {took:.0f} s; killed: {', '.join(killed)}; "
            f"most units at once in {units.changes} events: {units.peak}"
        )
        assert len(killed) == 3
        assert units.peak == Peak(lifted=POOL, bound=POOL)  # never more, and all of it


def kill_the_leader(queued: TwoNodes, meanwhile: Callable[[], None] = lambda: None) -> None:
    """And do something while nobody leads; the killed one comes back as a follower."""
    leader = queued.leader()
    leader.process.kill()
    meanwhile()
    leader.process.start()
    queued.leader()


def test_one_that_no_node_takes_holds_up_nobody_and_its_event_says_why(queued: TwoNodes) -> None:
    with UnitsOverTime(queued.cluster) as units:
        queued.make("big", cpu="1000")
        wait_until(
            lambda: (queued.condition("big") or {}).get("status") == "True", lambda: queued.told("big"), 30
        )
        queued.make("small")
        queued.wait_running("small")
        queued.make("last")
        began = time.monotonic()
        queued.wait_running("last")
        print(
            f"\nthe last runs after {time.monotonic() - began:.1f} s, with --stuck-after={STUCK_AFTER_S}; "
            f"most units at once: {units.peak}"
        )
        wait_until(lambda: "BitfusionSentBack" in queued.events("big"), lambda: queued.told("big"), 30)
        event = queued.events("big")["BitfusionSentBack"]
        print(event)
        assert "Insufficient cpu" in event
        assert "it goes to the end of the queue" in event
        # It waits behind the others now, and has lost nothing but its place.
        wait_until(
            lambda: (queued.condition("big") or {}).get("reason") == "WaitsForPool",
            lambda: queued.told("big"),
            30,
        )
        assert units.peak.lifted <= POOL


NOTHING: dict[str, Object] = {"plain": {}, "zero": {"bitfusion.io/gpu": "0"}}


def test_where_a_limit_range_gives_everybody_0_cpu_notebooks_run_without_the_queue(queued: TwoNodes) -> None:
    """With the one of the guide, a max for one notebook; nobody is there who could lift a gate."""
    (text,) = [each.commands for each in blocks(QUOTAS) if "LimitRange" in each.commands]
    limit_range = text.partition("<<END\n")[2].rpartition("END")[0]
    cluster, namespace = queued.cluster, queued.room.namespace
    before = {node.name: allocated(cluster, node.name) for node in queued.nodes}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=limit_range)
    try:
        for replica in queued.replicas:
            replica.process.kill()
        for name, limits in NOTHING.items():
            queued.make(name, limits)
        for name in NOTHING:
            queued.wait_running(name)
            (own,) = queued.room.running_pod(name)["spec"]["containers"]
            assert own["resources"]["limits"]["bitfusion.io/gpu"] == "0"  # as the LimitRange has it
        queued.make("half")
        gated = wait_until(lambda: queued.room.pod("half"), "the pod is made", 30)
        assert gated["spec"]["schedulingGates"] == [{"name": "bitfusion.io/queue"}]
        for replica in queued.replicas:
            replica.process.start()
        leader = queued.leader()
        queued.wait_running("half")
        wait_until(lambda: leader.metric("bitfusion_queue_taken_units") == 50)
        taken = [
            allocated(cluster, node.name).get("bitfusion.io/gpu", 0)
            - before[node.name].get("bitfusion.io/gpu", 0)
            for node in queued.nodes
        ]
        assert sorted(taken) == [0, 50]
        queued.make("second")
        queued.wait_running("second")  # two halves are the pool: nothing else counts
    finally:
        for replica in queued.replicas:
            if not replica.process.running:
                replica.process.start()
        cluster.kubectl("-n", namespace, "delete", "limitrange", "bitfusion")


WHOLE = {"bitfusion.io/gpu-amount": "1"}


def test_a_node_that_appears_after_the_gate_was_lifted_takes_the_pod(queued: TwoNodes) -> None:
    """As with an autoscaler, which sees no pod that is at a gate."""
    for node in queued.nodes:
        node.offer_units(0)
        node.kubelet.stop()
        queued.cluster.client.delete(f"/api/v1/nodes/{node.name}")
    try:
        queued.make("zero", WHOLE)
        queued.make("next")
        wait_until(
            lambda: (queued.condition("zero") or {}).get("reason") == "Lifted",
            lambda: queued.told("zero"),
            60,
        )
        scheduled = wait_until(lambda: unscheduled(queued, "zero"), lambda: queued.told("zero"), 60)
        print(f"\nwithout a node: {scheduled}")
        wait_until(lambda: (queued.condition("next") or {}).get("reason") == "WaitsForPool", "next waits", 30)
    finally:
        appeared = time.monotonic()
        for node in queued.nodes:
            node.kubelet.start()
            node.offer_units(POOL)
    queued.wait_running("zero")
    print(f"it runs {time.monotonic() - appeared:.1f} s after the first node was there")
    assert (queued.condition("next") or {}).get("reason") == "WaitsForPool"
    queued.stop("zero")
    queued.wait_running("next")


def unscheduled(queued: TwoNodes, name: str) -> str | None:
    """What an autoscaler looks for: that the scheduler has found no node."""
    pod = queued.room.pod(name) or {"status": {}}
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return None


@pytest.mark.apart
def test_units_of_a_lost_node_are_freed_by_the_taint_that_the_condition_names(
    queued: TwoNodes,
) -> None:
    first, second = queued.nodes
    queued.make("lost", WHOLE, node=second.name)
    queued.wait_running("lost")
    queued.make("waits", node=first.name)
    wait_until(lambda: queued.condition("waits"), lambda: queued.told("waits"), 30)
    second.kubelet.kill()
    try:
        wait_until(
            lambda: (queued.condition("waits") or {}).get("reason") == "WaitsForLostNode",
            lambda: queued.told("waits"),
            300,  # the cluster's --node-monitor-grace-period is 150 s
        )
        message = (queued.condition("waits") or {})["message"]
        print(f"\n{message}")
        assert f"of them 100 on node {second.name}, not ready since" in message
        assert queued.room.pod("waits") is not None
        wait_until(
            lambda: (
                "BitfusionNodeLost" in queued.events("lost")
                and "BitfusionWaitsForLostNode" in queued.events("waits")
            ),
            lambda: (queued.told("lost"), queued.told("waits")),
            30,
        )
        assert queued.events("waits")["BitfusionWaitsForLostNode"] == message
        taint = re.search(r"kubectl (taint node \S+ \S+), or", message)
        assert taint
        queued.cluster.kubectl(*taint[1].split())
        tainted = time.monotonic()
        queued.wait_running("waits")
        print(f"the next one runs {time.monotonic() - tainted:.0f} s after: kubectl {taint[1]}")
    finally:
        second.kubelet.start()
        queued.cluster.try_kubectl("taint", "node", second.name, "node.kubernetes.io/out-of-service-")
    wait_until(lambda: second._schedulable(), "the node is back", 120)
    wait_for(queued.cluster.client, second.name, POOL)
