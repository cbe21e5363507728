"""The process that reconciles stands still (a paused machine, a debugger): what was made meanwhile is healed.

KILL_ROUNDS says how many rounds there are (1).
"""

from __future__ import annotations

import os
import time
from functools import partial

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import CLIENT, TWO, notes, say
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.rounds]

ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
FROZEN_S = 10  # longer than the Lease holds


@pytest.mark.timeout(60 + 60 * ROUNDS)
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
            assert notes(room, name) == CLIENT
            # its Lease has run out while it stood still; the next round begins with a leader
            wait_until(lambda: ours.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
    say(f"frozen for {FROZEN_S} s and more, {ROUNDS} times: healed at most {max(times):.1f} s after the thaw")
    assert max(times) < scaled(15)
