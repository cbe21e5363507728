"""Kubeflow's culler stops a notebook whose size is wrong, made while our webhooks were away."""

from __future__ import annotations

import pytest

from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import STOPPED
from tests.cluster.notebooks import Room
from tests.cluster.our_controller import our_controller
from tests.cluster.outages import told
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

WRONG = {"bitfusion.io/gpu-amount": 2000, "cpu": "1.5", "memory": "1024Mi"}
AS_GO_WRITES_IT = {"bitfusion.io/gpu-amount": "2k", "cpu": "1500m", "memory": "1Gi"}
STILL_WRONG = (
    'left unchanged, but no GPU can be assigned: Invalid value "2k" for bitfusion.io/gpu-amount: '
    "must be a whole number from 1 to 1024"
)


def culled(notebook: Object) -> Object:
    """What the culler PUTs: all of the object, through Go's types, with its two annotations."""
    notebook["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": AS_GO_WRITES_IT,
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    notebook["metadata"]["annotations"] |= {
        "notebooks.kubeflow.org/last-activity": "2026-11-21T08:00:00Z",
        STOPPED: "2026-11-21T09:00:00Z",
    }
    return notebook


@pytest.mark.timeout(120)
def test_a_wrong_notebook_from_before_is_culled(cluster: Cluster) -> None:
    room = Room(cluster)
    with (
        our_controller(cluster, start=False) as ours,
        cluster.node_stub(room.namespace, schedulable=lambda pod: True),
        cluster.notebook_controller("1.8", room.namespace),
    ):
        room.create(limits=WRONG)
        room.wait_running()
        ours.process.start(limit_s=30)
        wait_until(lambda: told(room, "mine") == ["BitfusionRequestRefused"], limit_s=20)
        # the webhooks are there: nobody may make another one
        with pytest.raises(Refused, match="must be a whole number from 1 to 1024"):
            room.create("another", limits=WRONG)

        def cull() -> bool:
            del room.client.warnings[:]  # of a write that was refused, too
            try:
                room.client.put(f"{room.notebooks}/mine", culled(room.notebook()))
            except Refused as refused:
                if refused.status != 409:  # the notebook controller wrote its status meanwhile
                    raise
                return False
            return True

        wait_until(cull, "the culler's write", 20)
        wait_until(lambda: room.pod() is None, "the culled notebook's pod gone", 30)
        assert room.stateful_set()["spec"]["replicas"] == 0
        # and nothing about a restart, which is none of its doing
        assert room.client.warnings == [STILL_WRONG]
        room.client.delete(f"{room.notebooks}/mine")
