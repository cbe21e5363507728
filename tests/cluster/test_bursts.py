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
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

NOTEBOOKS, BURST = 200, 30
INFORMER_DELAY_S = 0.3  # Kubeflow's controller with so much to do at once
REVIEWS = "bitfusion_admission_reviews_total"


def without_webhooks(room: Room) -> None:
    """Delete them, and wait until the apiserver, which hears of it a moment later, asks nobody any more."""
    room.client.delete(WEBHOOK_PATH)
    looked_at = form_notebook("looked-at", TWO, namespace=room.namespace)

    def asked() -> bool:
        written = room.client.create(room.notebooks, looked_at, dryRun="All")
        return bool(ours_of(written["metadata"].get("annotations") or {}))

    wait_until(lambda: not asked(), "a Notebook created without a review", 20)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kubeflow", [pytest.param("1.7", marks=pytest.mark.apart), "1.8"])
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
        without_webhooks(room)
        before = ours.metric(REVIEWS)
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
        reviews = ours.metric(REVIEWS) - before
    say(
        f"{NOTEBOOKS} notebooks in bursts of {BURST} without webhooks ({kubeflow}): all made after "
        f"{created:.1f} s, all Running after {healed:.1f} s; {writes}"
    )
    assert {tuple(sorted(ours_of(pod["metadata"]["annotations"]).items())) for pod in pods} == {
        tuple(sorted(CLIENT.items()))
    }
    assert reviews == 0
