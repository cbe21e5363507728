"""Two hundred notebooks in bursts while no webhook is there: the reconciler alone makes all of them run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import Kubeflow
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import WEBHOOK_PATH, our_controller
from tests.cluster.outages import CLIENT, TWO, ours_of, say
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

NOTEBOOKS, BURST = 200, 30
INFORMER_DELAY_S = 0.3  # Kubeflow's controller with so much to do at once


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kubeflow", ["1.7", "1.8"])
def test_bursts_of_notebooks_are_healed_by_the_reconciler_alone(cluster: Cluster, kubeflow: Kubeflow) -> None:
    room = Room(cluster)
    names = [f"nb-{number}" for number in range(NOTEBOOKS)]
    with (
        our_controller(cluster) as ours,
        cluster.node_stub(room.namespace),
        cluster.notebook_controller(kubeflow, room.namespace, INFORMER_DELAY_S),
        ThreadPoolExecutor(BURST) as pool,
    ):
        wait_until(lambda: ours.metric("bitfusion_reconcile_leader") == 1, limit_s=20)
        cluster.client.delete(WEBHOOK_PATH)
        began = time.monotonic()
        for first in range(0, NOTEBOOKS, BURST):
            made = list(pool.map(lambda name: room.create(name, limits=TWO), names[first : first + BURST]))
            assert not any(ours_of(notebook["metadata"]["annotations"]) for notebook in made)
        created = time.monotonic() - began

        def running() -> int:
            pods = room.client.get(room.pods)["items"]
            return sum(pod["status"].get("phase") == "Running" for pod in pods)

        wait_until(lambda: running() == NOTEBOOKS, lambda: f"{running()} of {NOTEBOOKS} run", 300)
        healed = time.monotonic() - began
        pods = room.client.get(room.pods)["items"]
        writes = ours.metrics("bitfusion_reconcile_actions_total")
        reviews = ours.metric("bitfusion_admission_reviews_total")
    say(
        f"{NOTEBOOKS} notebooks in bursts of {BURST} without webhooks ({kubeflow}): all made after "
        f"{created:.1f} s, all Running after {healed:.1f} s; {writes}"
    )
    assert {tuple(sorted(ours_of(pod["metadata"]["annotations"]).items())) for pod in pods} == {
        tuple(sorted(CLIENT.items()))
    }
    assert reviews == 0
