"""The replica that leads is killed or told to end: the other one takes over."""

from __future__ import annotations

import time

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller, replica
from tests.cluster.outages import (
    CLIENT,
    TWO,
    Asked,
    notes,
    say,
)
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.timeout(180)
def test_the_leader_is_killed(cluster: Cluster) -> None:
    room = Room(cluster)
    with our_controller(cluster) as first:
        second = replica(cluster, first)
        second.process.start(limit_s=30)
        try:
            wait_until(lambda: first.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
            assert second.metric("bitfusion_reconcile_leader") == 0
            # Notebooks only: the leader's work is not its
            wait_until(lambda: second.metric("bitfusion_watch_synced") == 1, limit_s=20)
            asked = Asked(second)
            first.process.kill()
            # its webhooks too, in this test: what is made now is the reconciler's alone
            room.create("orphan", limits=TWO)
            began = time.monotonic()
            wait_until(lambda: notes(room, "orphan") == CLIENT, limit_s=60)
            took = time.monotonic() - began
            assert second.metric("bitfusion_reconcile_leader") == 1
            say(
                f"leader killed: the other replica healed a notebook {took:.1f} s later; "
                f"{asked.since('bitfusion_watch')} lists and watches, "
                f"{asked.since('bitfusion_reconcile')} writes"
            )
            # the lease's 7 s, a look each second, and the list
            assert took < scaled(10)
            # a list and a watch of each of the three kinds that only a leader watches
            assert asked.since("bitfusion_watch") <= 6
        finally:
            second.process.stop()


@pytest.mark.timeout(180)
@pytest.mark.long
def test_the_only_replica_is_killed_and_comes_back(cluster: Cluster) -> None:
    room = Room(cluster)
    with our_controller(cluster) as ours:
        wait_until(lambda: ours.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
        ours.process.kill()
        room.create("orphan", limits=TWO)
        ours.process.start()
        began = time.monotonic()
        wait_until(lambda: notes(room, "orphan") == CLIENT, limit_s=60)
        took = time.monotonic() - began
        say(f"the only replica killed: a notebook healed {took:.1f} s after the new one was ready")
        assert took < scaled(10), "the Lease of the one before has to run out"


@pytest.mark.timeout(180)
@pytest.mark.long
def test_the_leader_is_told_to_end(cluster: Cluster) -> None:
    room = Room(cluster)
    with our_controller(cluster) as first:
        second = replica(cluster, first)
        second.process.start(limit_s=30)
        try:
            wait_until(lambda: first.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
            took = first.process.stop()
            room.create("orphan", limits=TWO)
            began = time.monotonic()
            wait_until(lambda: notes(room, "orphan") == CLIENT, limit_s=60)
            healed = time.monotonic() - began
            say(f"leader told to end: gone after {took:.1f} s; the other one healed {healed:.1f} s later")
            assert took < scaled(20)
            assert healed < scaled(10), "the Lease is given back"
        finally:
            second.process.stop()
