"""A notebook whose StatefulSet is called otherwise, as Open Data Hub's are for long names: the whole way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_client.kubernetes.pod_units import units_of
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import LONGEST_OWN_NAME, STOPPED, Kubeflow
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import told
from tests.notebook_controller_patch.controller_process import INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.waiting import wait_until

NAME = "jupyter-nb-a-2dvery-2dlong-2dmail-2daddress-40example-2eorg"
HALF = {"bitfusion.io/gpu-50": "1"}
REQUEST, PENDING, MANAGEMENT = "bitfusion.io/request", "bitfusion.io/pending", "auto-management/bitfusion"

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def injector(cluster: Cluster, tmp_path: Path) -> Iterator[Installation]:
    with Installation(cluster, tmp_path, name="bitfusion-injector", module=INJECTOR) as made:
        yield made


def only_stateful_set(room: Room) -> Object | None:
    found = room.client.get(room.stateful_sets)["items"]
    return found[0] if len(found) == 1 else None


def is_pending(room: Room) -> bool:
    return PENDING in room.notebook(NAME)["metadata"]["annotations"]


def has_been_told(room: Room, *reasons: str) -> bool:
    return set(reasons) <= set(told(room, NAME))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kubeflow", ["1.7", "1.8"])
def test_a_statefulset_that_is_called_otherwise_is_served_as_any(
    cluster: Cluster, injector: Installation, kubeflow: Kubeflow
) -> None:
    assert LONGEST_OWN_NAME < len(NAME) <= 63
    room = Room(cluster)
    with (
        our_controller(cluster),
        cluster.node_stub(room.namespace),
        cluster.notebook_controller(kubeflow, room.namespace, generates_names=True),
    ):
        replica = injector.started()
        room.create(NAME, limits=HALF)
        made = wait_until(partial(only_stateful_set, room), "the StatefulSet", 20)
        name = made["metadata"]["name"]
        assert name.startswith("nb-")
        assert made["spec"]["template"]["metadata"]["annotations"][MANAGEMENT] == "injection"
        first = room.wait_running(name)
        assert units_of(first) == 50
        # a change waits, and is applied by a stop and a start
        room.annotate_with({REQUEST: "-n 2"}, NAME)
        wait_until(partial(is_pending, room), "the change is shown as pending", 20)
        assert room.running_pod(name)["metadata"]["uid"] == first["metadata"]["uid"]
        stop(room, name)
        room.annotate_with({STOPPED: None}, NAME)
        assert units_of(room.wait_running(name)) == 200
        wait_until(lambda: not is_pending(room), "nothing is pending", 20)
        # the injector is away when it starts, and comes back
        stop(room, name)
        replica.process.kill()
        room.annotate_with({STOPPED: None}, NAME)
        wait_until(partial(has_been_told, room, "BitfusionInjectorAway"), "it is told", 40)
        assert room.pod(name) is None
        replica = injector.start()
        injector.call(replica)
        replica.wait_ready()
        back = time.monotonic()
        room.wait_running(name)
        print(f"generated name: the pod runs {time.monotonic() - back:.1f} s after the injector's return")
        wait_until(partial(has_been_told, room, "BitfusionInjectorBack"), "it is told again", 20)


def stop(room: Room, name: str) -> None:
    room.annotate_with({STOPPED: "2026-11-26T00:00:00Z"}, NAME)
    wait_until(lambda: room.pod(name) is None, "the pod of the stopped notebook gone", 30)
