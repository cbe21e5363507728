"""A namespace that has opted out is left alone by webhooks and reconciler, until it opts in again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE, Room
from tests.cluster.our_controller import OurController, our_controller
from tests.support.waiting import wait_until

LABEL = "bitfusion.io/admission"
OPTED_OUT = {**PROFILE, LABEL: "ignore"}
HALF = {"bitfusion.io/gpu-50": "1"}
MANAGED = "auto-management/bitfusion"
PENDING = "bitfusion.io/pending"


@pytest.fixture(scope="module")
def ours(cluster: Cluster) -> Iterator[OurController]:
    with our_controller(cluster) as controller:
        # As only a leader does, and not from its first moment on.
        wait_until(lambda: opted_out(controller) is not None, "it knows the namespaces", 30)
        yield controller


def notes(room: Room, name: str = "mine") -> dict[str, str]:
    return dict(room.notebook(name)["metadata"].get("annotations") or {})


def label(room: Room, value: str | None) -> None:
    room.client.merge(f"/api/v1/namespaces/{room.namespace}", {"metadata": {"labels": {LABEL: value}}})


def opted_out(ours: OurController) -> float | None:
    """How many namespaces the reconciler leaves alone, once it has read them."""
    return ours.metrics("bitfusion_watch_objects").get('bitfusion_watch_objects{resource="namespaces"}')


def everything_was_looked_at(cluster: Cluster, ours: OurController) -> None:
    """A notebook that only the reconciler sees, made last, has been healed, and nothing else is queued."""
    witness = Room(cluster, {})
    witness.create(limits=HALF)
    wait_until(lambda: MANAGED in notes(witness), "the reconciler is there", 20)
    wait_until(lambda: ours.metric("bitfusion_reconcile_queued") == 0, "the queue is empty", 20)


@pytest.mark.slow
def test_notebooks_of_an_opted_out_namespace_are_neither_healed_nor_annotated(
    cluster: Cluster, ours: OurController
) -> None:
    known = opted_out(ours) or 0
    room = Room(cluster, OPTED_OUT)
    wait_until(lambda: opted_out(ours) == known + 1, "the namespace is known", 20)
    with cluster.notebook_controller("1.7", room.namespace), cluster.node_stub(room.namespace):
        room.create(limits=HALF)
        room.create("wrong", limits={"bitfusion.io/gpu-500": "1"})
        room.wait_stateful_set()
        everything_was_looked_at(cluster, ours)
        before = notes(room)
        assert MANAGED not in before
        assert MANAGED not in room.template_annotations()
        events = room.client.get(f"/api/v1/namespaces/{room.namespace}/events")["items"]
        assert [each["reason"] for each in events if each["reason"].startswith("Bitfusion")] == []

        label(room, None)
        wait_until(lambda: MANAGED in notes(room), "healed after it has opted in", 20)
        wait_until(lambda: MANAGED in room.template_annotations(), "the template, too", 20)
        room.wait_running()

        label(room, "ignore")
        wait_until(lambda: opted_out(ours) == known + 1, "the label is known", 20)
        room.annotate_with({"bitfusion.io/request": "-n 2"})
        everything_was_looked_at(cluster, ours)
        assert PENDING not in notes(room)

        label(room, None)
        wait_until(lambda: PENDING in notes(room), "told after it has opted in again", 20)
