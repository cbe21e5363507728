"""The leader stands still (a paused machine, a debugger): what was made meanwhile is healed."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import CLIENT, TWO, notes, say
from tests.support.machine import scaled
from tests.support.rounds import rounds
from tests.support.waiting import wait_until

ROUNDS = rounds(3, 20)  # it lost one in two, before keys were kept
FROZEN_S = 10  # longer than the Lease holds

pytestmark = [pytest.mark.long, pytest.mark.timeout(60 + 60 * ROUNDS)]


def test_a_notebook_that_is_made_while_the_leader_is_frozen_is_healed(cluster: Cluster) -> None:
    room = Room(cluster)
    times = []
    with (
        our_controller(cluster) as ours,
        cluster.node_stub(room.namespace),
        cluster.notebook_controller("1.7", room.namespace),
    ):
        wait_until(lambda: ours.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
        for number in range(ROUNDS):
            name = f"nb-{number}"
            ours.process.freeze()
            try:
                until = time.monotonic() + FROZEN_S
                # The form creates it twice, and each time the apiserver waits for the webhook in vain.
                room.create(name, limits=TWO)
                assert notes(room, name) == {}
                wait_until(partial(room.pod, name), "the pod that no node can take", 60)
                time.sleep(max(0.0, until - time.monotonic()))
            finally:
                ours.process.thaw()
            thawed = time.monotonic()
            room.wait_running(name, 60)
            times.append(time.monotonic() - thawed)
            # For a moment the healed template may look like a change that waits for the next start.
            wait_until(partial(_has_only_ours, room, name), "its annotations, none of them pending", 10)
            # its Lease has run out while it stood still; the next round begins with a leader
            wait_until(lambda: ours.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
    say(f"frozen for {FROZEN_S} s and more, {ROUNDS} times: healed at most {max(times):.1f} s after the thaw")
    assert max(times) < scaled(15)


def _has_only_ours(room: Room, name: str) -> bool:
    return notes(room, name) == CLIENT
