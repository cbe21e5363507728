"""Our webhooks are down: what was made meanwhile ends up as if they had been there, and what runs goes on."""

from __future__ import annotations

import time

import pytest

from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import Kubeflow
from tests.cluster.notebooks import Room, generation, version
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import (
    CLIENT,
    LABEL,
    OS,
    PENDING,
    REQUEST,
    TWO,
    notes,
    ours_of,
    say,
    template,
    told,
)
from tests.support.waiting import Deadline, wait_until, wait_until_settled

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kubeflow", [pytest.param("1.7", marks=pytest.mark.apart), "1.8"])
def test_all_our_webhooks_down(cluster: Cluster, kubeflow: Kubeflow) -> None:
    room = Room(cluster)
    with (
        our_controller(cluster) as ours,
        cluster.node_stub(room.namespace),
        cluster.notebook_controller(kubeflow, room.namespace),
    ):
        for name in ("runs", "changes", "stops"):
            room.create(name, limits=TWO)
        for name in ("runs", "changes", "stops"):
            room.wait_running(name)
        plain = room.create("plain")
        room.wait_running("plain")
        pods = {name: room.running_pod(name) for name in ("runs", "changes", "plain")}

        ours.process.kill()
        deadline = Deadline(30)
        # everything can be made and changed, at once
        new = room.create("new", limits=TWO)
        room.create("new-half", limits={"bitfusion.io/gpu-50": "1"}, annotations={OS: "centos8"})
        room.create("wrong", limits={"bitfusion.io/gpu-101": "1"})
        room.create("new-plain")
        unrelated(room)
        room.annotate_with({REQUEST: "-n 1 -p 0.5"}, "changes")
        room.annotate_with({REQUEST: "-n 1 -p 0.5"}, "stops")
        room.stop("stops")
        room.create("stopped", limits=TWO, annotations={"kubeflow-resource-stopped": "2026-11-21T08:00:00Z"})
        room.wait_stateful_set("stopped")
        assert not deadline.passed, "writes waited for webhooks that are not there"
        assert ours_of(new["metadata"]["annotations"]) == {}
        room.wait_running("new-plain")
        # what asks was let in without the client: no node can take it
        wait_until(lambda: room.pod("new") and room.pod("new-half"), limit_s=20)
        sets = {name: room.stateful_set(name) for name in ("runs", "changes", "plain", "new-plain", "wrong")}

        began = time.monotonic()
        ours.process.start()
        asked_at = time.monotonic() - began
        for name in ("new", "new-half"):
            room.wait_running(name)
        wait_until(
            lambda: notes(room, "stopped") == CLIENT and template(room, "stopped") == CLIENT, limit_s=20
        )
        wait_until(lambda: template(room, "stops") == {**CLIENT, REQUEST: "-n 1 -p 0.5"}, limit_s=20)
        wait_until(lambda: PENDING in notes(room, "changes"), limit_s=20)
        wait_until(lambda: told(room, "wrong") == ["BitfusionRequestRefused"], limit_s=20)
        healed = time.monotonic() - began
        asked = round(ours.metric("bitfusion_watch_queries_total"))
        done = round(ours.metric("bitfusion_reconcile_actions_total"))
        say(
            f"webhooks down ({kubeflow}): all healed {healed:.1f} s after the start of the process "
            f"(ready after {asked_at:.1f} s); {asked} lists and watches, {done} writes"
        )

        # For a moment the healed template may look like a change that waits for the next start.
        wait_until(lambda: notes(room, "new") == CLIENT, lambda: notes(room, "new"))
        assert room.notebook("new")["metadata"]["labels"][LABEL] == "true"
        half = {**CLIENT, OS: "centos8"}
        wait_until(lambda: notes(room, "new-half") == half, lambda: notes(room, "new-half"))
        assert template(room, "new-half") == {**CLIENT, OS: "centos8"}
        assert ours_of(room.running_pod("new-half")["metadata"]["annotations"]) == {**CLIENT, OS: "centos8"}
        assert told(room, "new") == ["BitfusionPodRemade"]
        assert notes(room, "changes")[PENDING] == "1 GPU × 50 % instead of 2 GPUs, from the next start"
        assert told(room, "changes") == ["BitfusionChangePending"]
        # as if nothing had been: what runs is what ran
        wait_until_settled(
            lambda: [version(room.notebook(name)) for name in ("runs", "changes", "new", "wrong")]
        )
        for name, before in pods.items():
            now = room.running_pod(name)
            assert now["metadata"]["uid"] == before["metadata"]["uid"], f"{name} was restarted"
        for name, before_set in sets.items():
            assert generation(room.stateful_set(name)) == generation(before_set), f"{name} was written"
        assert room.notebook("plain")["metadata"]["annotations"] == plain["metadata"]["annotations"]
        assert done <= 25
        assert asked <= 10
        # the changed one takes it over by its own restart, with one new revision
        revisions = room.revisions("changes")
        room.stop("changes")
        room.start("changes")
        assert template(room, "changes") == {**CLIENT, REQUEST: "-n 1 -p 0.5"}
        assert len(room.revisions("changes") - revisions) == 1
        wait_until(
            lambda: told(room, "changes") == ["BitfusionChangeApplied", "BitfusionChangePending"],
            lambda: told(room, "changes"),
        )
        wait_until(lambda: PENDING not in notes(room, "changes"), limit_s=10)


def unrelated(room: Room) -> None:
    """Objects that have nothing to do with us, in the same namespace."""
    name = {"metadata": {"name": "unrelated"}}
    base = f"/namespaces/{room.namespace}"
    pod_spec = {"containers": [{"name": "c", "image": "i"}]}
    labels = {"app": "unrelated"}
    made: list[tuple[str, Object]] = [
        (f"/api/v1{base}/configmaps", {**name, "data": {"a": "b"}}),
        (f"/api/v1{base}/pods", {**name, "spec": pod_spec}),
        (
            f"/apis/apps/v1{base}/statefulsets",
            {
                **name,
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod_spec},
                },
            },
        ),
    ]
    for path, body in made:
        room.client.create(path, body)
