"""Pods at the queue's gate on a real API server: who gets it, beside whom, and what the API says of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.kubernetes.names import QUEUE_GATE
from tests.bitfusion_device_plugin.injector.another_webhook import another_webhook, like_istio
from tests.bitfusion_device_plugin.injector.pods import container, pod
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.notebook_controller_patch.controller_process import INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.waiting import wait_until

OURS = {"name": QUEUE_GATE}
OTHER = {"name": "example.com/licence"}


@pytest.fixture(scope="module")
def room(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A user's namespace, beside an injector with --gates=on that the API server calls."""
    folder = tmp_path_factory.mktemp("injector")
    with Installation(cluster, folder, name="bitfusion-injector", module=INJECTOR) as installation:
        replica = installation.started("--gates=on")
        found = Room(cluster)
        wait_until(
            lambda: gates(create(found, asking(), dryRun="All")),
            "the webhook is called",
            20,
            errors=(Refused,),
        )
        assert replica.metric("bitfusion_injector_gates") == 1
        yield found


def asking(**spec: Any) -> Object:
    return pod(container({"bitfusion.io/gpu-50": "1"}), **spec)


def create(room: Room, made: Object, **query: Any) -> Object:
    return room.client.create(room.pods, made, **query)


def gates(made: Object) -> Any:
    return made["spec"].get("schedulingGates")


@pytest.mark.parametrize(
    ("present", "expected"), [([], [OURS]), ([OTHER], [OTHER, OURS]), ([OURS, OTHER], [OURS, OTHER])]
)
def test_a_pod_that_asks_waits_at_the_gate_and_one_that_does_not_is_left_alone(
    room: Room, present: list[Object], expected: list[Object]
) -> None:
    made = create(room, asking(schedulingGates=present))
    assert gates(made) == expected
    (condition,) = [each for each in made["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert condition["reason"] == "SchedulingGated"
    room.client.delete(f"{room.pods}/nb-0", {"gracePeriodSeconds": 0})
    other = create(room, pod(container(), annotations=None, schedulingGates=present), dryRun="All")
    assert gates(other) == (present or None)


def test_an_update_of_a_pod_that_was_lifted_brings_no_gate_back(room: Room) -> None:
    create(room, asking())
    path = f"{room.pods}/nb-0"
    room.client.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}])
    assert gates(room.client.merge(path, {"metadata": {"labels": {"a": "b"}}})) is None
    room.client.delete(path, {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("turn", ["a-mesh", "z-mesh"], ids=["before ours", "after ours"])
def test_beside_a_webhook_that_makes_the_api_server_ask_again_there_is_one_gate(
    room: Room, tmp_path: Path, turn: str
) -> None:
    with another_webhook(room.cluster, room, turn, tmp_path, like_istio):

        def meshed() -> Object | None:
            made = create(room, asking(), dryRun="All")
            return made if len(made["spec"]["containers"]) == 2 else None

        assert gates(wait_until(meshed, "the other webhook is called", 20)) == [OURS]


def test_a_pod_that_names_its_node_hears_it_from_us_and_not_of_a_gate(room: Room) -> None:
    with pytest.raises(Refused) as refused:
        create(room, asking(nodeName="n1"), dryRun="All")
    denied = 'webhook "pods.bitfusion.io" denied the request: spec.nodeName: n1 bypasses'
    assert denied in refused.value.message
    chosen = asking(nodeSelector={"kubernetes.io/hostname": "n1"})
    assert gates(create(room, chosen, dryRun="All")) == [OURS]
    # What the API itself would say.
    with pytest.raises(Refused, match="Forbidden: cannot be set until all schedulingGates"):
        create(room, pod(container(), annotations=None, nodeName="n1", schedulingGates=[OURS]), dryRun="All")
