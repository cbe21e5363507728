"""A namespace's quota of units on a real API server: who is refused, in which words, and who starts when.

The injector turns the pods' sizes into units; StatefulSets are made as by Kubeflow, their pods by the real
controller manager.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_client.kubernetes.pod_units import unit_count, units_of
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import OurController, our_controller
from tests.cluster.outages import say
from tests.notebook_controller_patch.controller_process import INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.waiting import wait_until

KEY = "requests.bitfusion.io/gpu"
HALF, TWO = {"bitfusion.io/gpu-50": "1"}, {"bitfusion.io/gpu-amount": "2"}
EXCEEDED = "BitfusionQuotaExceeded"

pytestmark = pytest.mark.slow


@pytest.fixture
def injector(cluster: Cluster, tmp_path: Path) -> Iterator[Installation]:
    with Installation(cluster, tmp_path, name="bitfusion-injector", module=INJECTOR) as made:
        yield made


def set_quota(room: Room, units: int) -> None:
    quotas = f"/api/v1/namespaces/{room.namespace}/resourcequotas"
    spec = {"hard": {KEY: str(units)}}
    if room.client.exists(f"{quotas}/gpus"):
        room.client.merge(f"{quotas}/gpus", {"spec": spec})
    else:
        room.client.create(quotas, {"metadata": {"name": "gpus"}, "spec": spec})
    wait_until(lambda: unit_count(status(room).get("hard", {}).get(KEY)) == units, "the quota is in force")


def status(room: Room) -> Object:
    quota = room.client.get(f"/api/v1/namespaces/{room.namespace}/resourcequotas/gpus")
    found: Object = quota.get("status") or {}
    return found


def used(room: Room) -> int:
    return unit_count(status(room)["used"][KEY])  # 10000 is "10k"


def are_used(room: Room, units: int) -> bool:
    return used(room) == units


def events(room: Room, kind: str, name: str) -> list[Object]:
    """The Events about an object, the newest last."""
    found = [
        one
        for one in room.client.get(f"/api/v1/namespaces/{room.namespace}/events")["items"]
        if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name)
    ]
    return sorted(found, key=lambda one: str(one["lastTimestamp"]))


def words(room: Room, name: str) -> str | None:
    """What we have said last of a notebook's quota."""
    said = [one["message"] for one in events(room, "Notebook", name) if one["reason"] == EXCEEDED]
    return said[-1] if said else None


def shown_by_the_form(room: Room, name: str) -> str:
    """The newest warning: Kubeflow tells the StatefulSet's on the Notebook, where the form reads it."""
    told = [*events(room, "StatefulSet", name), *events(room, "Notebook", name)]
    warnings = [one for one in told if one["type"] == "Warning"]
    return str(max(warnings, key=lambda one: str(one["lastTimestamp"]))["message"])


def retries(controller: OurController, room: Room, name: str) -> int:
    """How often this notebook's pod was tried again; the cluster has others, of other tests."""
    lines = [json.loads(line) for line in controller.process.log.read_text().splitlines() if line[:1] == "{"]
    wanted = ("refused pod tried again", room.namespace, name)
    return [(one["message"], one.get("namespace"), one.get("notebook")) for one in lines].count(wanted)


def own_tries(room: Room, name: str) -> int:
    """How often the StatefulSet's pod has been refused."""
    return sum(int(one.get("count") or 1) for one in events(room, "StatefulSet", name))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_fourth_notebook_is_told_why_it_waits_and_starts_when_another_one_stops(
    cluster: Cluster, injector: Installation
) -> None:
    room = Room(cluster)
    set_quota(room, 150)
    with (
        our_controller(cluster) as ours,
        cluster.node_stub(room.namespace),
        cluster.notebook_controller("1.7", room.namespace),
    ):
        injector.started()
        for name in ("one", "two", "three"):
            room.create(name, limits=HALF)
            room.wait_running(name)
        room.create("four", limits=HALF)
        room.create("large", limits=TWO)
        room.create("plain")
        told = wait_until(partial(words, room, "four"), "the fourth is told", 30)
        assert told == (
            f"This notebook cannot start: namespace {room.namespace} may have 150 units (1.5 GPUs) of "
            "Bitfusion at a time, 150 are taken, and this notebook asks for 50. It starts automatically "
            "once enough are free. What to do: stop another notebook, or ask your administrator for more "
            "units (quota gpus)."
        )
        assert wait_until(partial(words, room, "large"), "the large one is told", 30).endswith(
            "but this notebook asks for 200. What to do: stop it, choose a smaller size and start it again, "
            "or ask your administrator for more units (quota gpus)."
        )
        room.wait_running("plain")  # a quota of units is nothing to others
        raw = events(room, "StatefulSet", "four")[-1]
        assert raw["reason"] == "FailedCreate"
        assert raw["message"].endswith(
            f'pods "four-0" is forbidden: exceeded quota: gpus, requested: {KEY}=50, used: {KEY}=150, '
            f"limited: {KEY}=150"
        )
        assert "quota" in shown_by_the_form(room, "four")
        assert (room.pod("four"), used(room)) == (None, 150)
        for name in ("four", "large"):
            assert retries(ours, room, name) == 0, "nothing is tried while there is no room"
        # Its StatefulSet tries by itself, each time after twice as long: it has just done so.
        tried = own_tries(room, "four")
        wait_until(lambda: own_tries(room, "four") > tried, "the StatefulSet's own next try", 60)
        # what the words advise
        room.stop("one")
        stopped = time.monotonic()
        room.wait_running("four")
        took = time.monotonic() - stopped
        say(f"quota: the fourth notebook runs {took:.1f} s after the end of another one's pod")
        assert retries(ours, room, "four") >= 1
        assert room.pod("large") is None
        set_quota(room, 350)
        raised = time.monotonic()

        def what_there_is() -> object:
            quota = room.client.get(f"/api/v1/namespaces/{room.namespace}/resourcequotas/gpus")["status"]
            return (
                quota,
                retries(ours, room, "large"),
                [e["message"] for e in events(room, "StatefulSet", "large")],
            )

        # Kubernetes may count a pod twice that was created twice at once, and counts anew after five minutes.
        wait_until(lambda: room.pod("large"), what_there_is, 100)
        room.wait_running("large")
        say(f"quota: the large notebook runs {time.monotonic() - raised:.1f} s after the quota was raised")
        wait_until(partial(are_used, room, 350), partial(status, room))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_notebooks_larger_than_their_quota_start_when_they_do_as_they_are_told(
    cluster: Cluster, injector: Installation
) -> None:
    room = Room(cluster)
    set_quota(room, 100)
    with (
        our_controller(cluster),
        cluster.node_stub(room.namespace),
        cluster.notebook_controller("1.7", room.namespace),
    ):
        injector.started()
        names = ("request", "limits")
        for name in names:
            room.create(name, limits=TWO)
        for name in names:
            told = wait_until(partial(words, room, name), f"{name} is told", 30)
            assert "What to do: stop it, choose a smaller size and start it again, or" in told
            room.stop(name)
        room.annotate_with({"bitfusion.io/request": "-n 1 -p 0.5"}, "request")
        notebook = room.notebook("limits")
        notebook["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = HALF
        room.client.put(f"{room.notebooks}/limits", notebook)
        for name in names:
            assert units_of(room.start(name)) == 50
        wait_until(partial(are_used, room, 100), partial(status, room))


def container(name: str, units: int | None) -> Object:
    limits = {} if units is None else {"bitfusion.io/gpu": str(units)}
    return {"name": name, "image": "i", "resources": {"limits": limits}}


def sidecar(name: str, units: int) -> Object:
    return {**container(name, units), "restartPolicy": "Always"}


PODS: dict[str, tuple[list[Object], list[Object]]] = {
    # init containers, containers
    "one": ([], [container("a", 50)]),
    "two": ([], [container("a", 50), container("b", None), container("c", 25)]),
    "init-larger": ([container("i", 80)], [container("a", 50)]),
    "init-smaller": ([container("i", 20), container("j", 30)], [container("a", 50)]),
    "sidecar": ([sidecar("s", 10)], [container("a", 50)]),
    "init-beside-sidecar": (
        [
            sidecar("s", 10),
            container("i", 70),
            sidecar("t", 5),
        ],
        [container("a", 20), container("b", 20)],
    ),
    "init-before-sidecar": (
        [container("i", 70), sidecar("s", 10)],
        [container("a", 20)],
    ),
    "nothing": ([], [container("a", None)]),
}


def test_units_are_counted_as_the_api_server_counts_them_for_a_quota(cluster: Cluster) -> None:
    room = Room(cluster, labels={})
    set_quota(room, 10_000)
    counted = 0
    for name, (init, containers) in PODS.items():
        spec = {"initContainers": init, "containers": containers, "automountServiceAccountToken": False}
        made = room.client.create(room.pods, {"metadata": {"name": name}, "spec": spec})
        before, own = counted, units_of(made)
        counted += own
        wait_until(partial(are_used, room, counted), partial(status, room))
        print(f"quota: {name}: {own} units, {before} -> {used(room)} used")
    assert counted == 50 + 75 + 80 + 50 + 60 + 80 + 70
