"""Pods beside the pool: what a notebook holds, and who holds without a pod."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_device_plugin.units_report.cluster_objects import cluster_objects
from bitfusion_device_plugin.units_report.cluster_report import cluster_report, newest_version, unprotected
from bitfusion_device_plugin.units_report.pool_holders import AtThePool, holders
from bitfusion_pool.ledger.entries import Entry
from tests.bitfusion_device_plugin.units_report.raw import (
    SECONDS,
    entry,
    gated,
    node,
    pod,
    queue_pod,
    quota,
    status,
    waiting,
)

NO_QUEUE = "no pod of the account bitfusion-queue is ready, so nobody lifts gates in order"
OLD = "this is Kubernetes 1.26 by its nodes, and there are no scheduling gates below 1.27"
CLUSTER = [node(), node("n2"), queue_pod(), quota(), pod(), gated(units=200)]


def report(items: list[Any], *entries: Entry) -> Any:
    return cluster_report(cluster_objects(items), status(*entries))


def test_units_that_are_taken_free_and_waited_for() -> None:
    found = report(CLUSTER)
    assert (found.pool_units, found.taken, found.free) == (200, 50, 150)
    assert (len(found.waiting), found.waiting_units, found.without_units) == (1, 200, [])
    assert found.unprotected == []


def test_a_pool_that_is_sold_twice_is_oversold() -> None:
    found = report([node(units=100), pod("a-0", units=80), pod("b-0", units=80, node="n2")])
    assert (found.taken, found.free) == (160, -60)


def test_units_on_nodes_that_are_not_ready_are_taken_the_most_first() -> None:
    nodes = [node(ready="Unknown"), node("n2", ready="False"), node("n3"), node("n4", ready="False")]
    pods = [pod("a-0", units=30), pod("b-0", units=40, node="n2"), pod("c-0", units=20)]
    found = report([*nodes, *pods, pod("d-0", units=5, node="n3")])
    assert [(one.name, units) for one, units in found.lost] == [("n1", 50), ("n2", 40)]
    assert (found.pool_units, found.taken, found.without_units) == (200, 95, [])


def test_what_a_notebook_has_at_the_pool_stands_beside_its_pod() -> None:
    found = report(CLUSTER, entry(), waiting(number=2), waiting(number=3))
    assert [(pod.notebook, has) for pod, has in found.pods()] == [
        ("big", AtThePool()),
        ("mnist", AtThePool(50, 1, 2, seconds=SECONDS)),
    ]
    assert found.unaccounted == []


@pytest.mark.parametrize(
    ("mib", "gpus", "units"),
    [
        pytest.param(16160, 1, 100, id="whole"),
        pytest.param(8080, 1, 50, id="half"),
        pytest.param(8080, 2, 100, id="two halves"),
        pytest.param(5979, 1, 37, id="37 %"),
        pytest.param(323, 1, 2, id="2 %"),
        pytest.param(5461, 1, 34, id="an amount of memory"),
        pytest.param(99999, 1, 100, id="of a device that has shrunk"),
    ],
)
def test_a_lease_in_units(mib: int, gpus: int, units: int) -> None:
    (has,) = holders(status(entry(mib=mib, gpus=gpus))).values()
    assert has == AtThePool(units, 1, seconds=SECONDS)


def test_of_several_leases_the_oldest_and_the_kernel_that_is_idle_the_longest_are_told() -> None:
    old, young = (KernelActivity("idle", 1990.0, since) for since in (1100.0, 1500.0))
    busy = entry(number=2, activity=KernelActivity("running", 1990.0))
    (has,) = holders(status(entry(activity=young), busy, entry(number=3, activity=old))).values()
    assert has == AtThePool(150, 3, 0, 100, SECONDS, 900.0)
    assert has.idle_text() == "100 of 150, 15 min 00 s"
    (has,) = holders(status(entry(activity=old))).values()
    assert has.idle_text() == "15 min 00 s"
    (has,) = holders(status(busy)).values()
    assert (has.idle_text(), AtThePool().idle_text()) == ("", "")


@pytest.mark.parametrize(
    ("held", "place", "why"),
    [
        ([entry(mib=16160)], "team-a/mnist", "its pod has 50 units"),
        ([entry(), entry(number=2)], "team-a/mnist", "its pod has 50 units"),
        ([entry(host="team-a/gone")], "team-a/gone", "no pod with units has this name"),
        ([entry(host="team-a/big")], "team-a/big", "its pod has no node yet, so the holder is somebody else"),
        (
            [entry(user="cluster/team-b")],
            "team-b",
            "claims to be team-a/mnist, but uses another namespace's token",
        ),
        (
            [entry(host="laptop")],
            "team-a",
            "names no notebook: not a pod of the cluster, or a pod without an injected client",
        ),
        ([entry(user="ada")], "", "a token of no namespace"),
        ([entry(user="root", remote=False)], "", "a user of the pool's own machine"),
    ],
    ids=["more", "more together", "gone", "gated", "other namespace", "no notebook", "plain token", "local"],
)
def test_a_holder_that_no_pod_accounts_for(held: list[Entry], place: str, why: str) -> None:
    (one,) = report(CLUSTER, *held).unaccounted
    assert (one.holder.place, one.why, one.holder.user) == (place, why, held[0].holder.user)


def test_who_only_waits_holds_nothing_that_must_be_accounted_for() -> None:
    assert report(CLUSTER, waiting(host="team-a/gone")).unaccounted == []


def test_two_issuers_of_one_namespace_are_added_up() -> None:
    found = report(CLUSTER, entry(), entry(user="old/team-a", number=2))
    assert [(one.holder.user, one.why) for one in found.unaccounted] == [
        ("cluster/team-a", "its pod has 50 units"),
        ("old/team-a", "its pod has 50 units"),
    ]


def test_a_name_that_the_service_has_cut_is_found_by_its_beginning() -> None:
    notebook = "n" * 70
    cut = f"team-a/{notebook}"[:59] + "…"
    found = report([node(), queue_pod(), pod(notebook=notebook)], entry(host=cut))
    assert (found.pods()[0][1], found.unaccounted) == (AtThePool(50, 1, seconds=SECONDS), [])


def test_of_two_pods_of_a_notebook_the_one_on_a_node_holds() -> None:
    old, new = pod(deletionTimestamp="now"), gated("mnist-0")
    pods = report([node(), old, new], entry()).pods()
    assert [has.held for pod, has in pods if pod.node] == [50]


def test_without_a_pool_its_half_is_missing() -> None:
    found = cluster_report(cluster_objects(CLUSTER), None, "nobody is there")
    assert {has for _, has in found.pods()} == {None}
    assert (found.unaccounted, found.no_pool, found.free) == ([], "nobody is there", 150)


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
    assert unprotected(cluster_objects(items)) == list(reasons)


@pytest.mark.parametrize(
    ("versions", "newest"),
    [([], None), (["", "x", "1"], None), (["v1.9.1", "v1.10.0"], (1, 10)), (["1.34"], (1, 34))],
)
def test_the_newest_of_versions(versions: list[str], newest: tuple[int, int] | None) -> None:
    assert newest_version(versions) == newest
