"""The pod injector is away: who waits for it, who is told, and how soon all is as it should be after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import Kubeflow
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import OurController, our_controller
from tests.cluster.outages import TWO, say, told
from tests.cluster.test_webhook_outage import unrelated
from tests.notebook_controller_patch.controller_process import INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.waiting import Deadline, wait_until

HALF = {"bitfusion.io/gpu-50": "1"}
AWAY, BACK = "BitfusionInjectorAway", "BitfusionInjectorBack"

pytestmark = pytest.mark.slow


@pytest.fixture
def injector(cluster: Cluster, tmp_path: Path) -> Iterator[Installation]:
    with Installation(cluster, tmp_path, name="bitfusion-injector", module=INJECTOR) as made:
        yield made


def asking_pod(name: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"limits": HALF}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def has_been_told(room: Room, name: str, *reasons: str) -> bool:
    return told(room, name) == list(reasons)


def retries(controller: OurController) -> float:
    return sum(controller.metrics('bitfusion_reconcile_actions_total{action="RetryPod"').values())


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("kubeflow", "seconds"),
    [("1.7", 8), pytest.param("1.8", 90, marks=[pytest.mark.long, pytest.mark.apart])],
    ids=["short", "long"],
)
def test_notebooks_start_within_seconds_of_the_injectors_return(
    cluster: Cluster, injector: Installation, kubeflow: Kubeflow, seconds: float
) -> None:
    room = Room(cluster)
    sizes = {"one": TWO, "two": TWO, "three": {"bitfusion.io/gpu-3x50": "1"}}
    names = list(sizes)
    with (
        our_controller(cluster) as ours,
        cluster.node_stub(room.namespace),
        cluster.notebook_controller(kubeflow, room.namespace),
    ):
        injector.started().process.kill()
        deadline = Deadline(30)
        for name, size in sizes.items():
            room.create(name, limits=size)
        room.create("plain")
        unrelated(room)
        with pytest.raises(Refused, match=r'failed calling webhook "pods\.bitfusion\.io"'):
            room.client.create(room.pods, asking_pod("by-hand"))
        room.wait_running("plain")
        assert not deadline.passed, "what does not ask has waited for the injector"
        began = time.monotonic()
        for name in names:
            wait_until(partial(has_been_told, room, name, AWAY), f"{name} is told", 40)
        wait_until(lambda: retries(ours) >= 1, "a try", 20)
        wait_until(lambda: time.monotonic() - began >= seconds, "the outage is long enough", seconds + 5)
        assert all(room.pod(name) is None for name in names)
        tried = retries(ours)

        replica = injector.start()
        injector.call(replica)
        replica.wait_ready()
        back = time.monotonic()
        for name in names:
            wait_until(partial(room.pod, name), f"{name} has its pod", 10)
        took = time.monotonic() - back
        for name in names:
            room.wait_running(name)
            wait_until(partial(has_been_told, room, name, AWAY, BACK), f"{name} is told again", 10)
        say(
            f"injector away ({kubeflow}, {seconds:g} s): {len(names)} notebooks have their pods {took:.1f} s "
            f"after its return; {tried:g} tries meanwhile"
        )
        # one notebook was tried at a time
        assert tried <= (time.monotonic() - began) / 4 + len(names)
        for name, units in (("one", "200"), ("three", "150")):
            limits = room.running_pod(name)["spec"]["containers"][0]["resources"]["limits"]
            assert {key: size for key, size in limits.items() if "bitfusion" in key} == {
                "bitfusion.io/gpu": units
            }
