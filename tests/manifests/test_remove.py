"""Removal, webhook configuration first: nothing of ours stays, every notebook runs on and starts again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import Kubeflow
from tests.cluster.notebooks import Room
from tests.manifests.built import OVERLAYS, PROCESSES
from tests.manifests.installed import (
    cert_manager,
    folder,
    installed,
    kubeflow_namespace,
    remove,
)
from tests.manifests.stand_in import StandIn
from tests.support.machine import scaled
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Iterator[None]:
    """What overlays expect to be there: Kubeflow's namespace, cert-manager's kinds."""
    with kubeflow_namespace(cluster), cert_manager(cluster):
        yield


@pytest.mark.parametrize(
    "overlay", [pytest.param(each, marks=[pytest.mark.long] * (each != "kubeflow")) for each in OVERLAYS]
)
def test_removing_leaves_no_object(cluster: Cluster, platform: None, overlay: str) -> None:
    with installed(cluster, overlay):
        assert len(cluster.kubectl("get", "-o", "name", "-k", folder(overlay)).split()) > 1
        remove(cluster, overlay)
        assert cluster.kubectl("get", "--ignore-not-found", "-o", "name", "-k", folder(overlay)) == ""


@pytest.mark.parametrize("kubeflow", [pytest.param("1.7", marks=pytest.mark.long), "1.8"])
def test_removing_leaves_every_notebook_running_and_startable(
    cluster: Cluster, platform: None, tmp_path: Path, kubeflow: Kubeflow
) -> None:
    with ExitStack() as around:
        around.enter_context(installed(cluster, "kubeflow"))
        ours = [around.enter_context(StandIn(cluster, tmp_path, "kubeflow", name=name)) for name in PROCESSES]
        around.enter_context(
            cluster.node_stub("kubeflow", schedulable=lambda pod: all(each.ready(pod) for each in ours))
        )
        for name in PROCESSES:
            limit = f"--timeout={scaled(40):.0f}s"
            rollout = ("rollout", "status", f"deployment/{name}", "-n", "kubeflow", limit)
            assert "successfully rolled out" in cluster.kubectl(*rollout)
        room = Room(cluster)
        around.enter_context(cluster.notebook_controller(kubeflow, room.namespace))
        around.enter_context(cluster.node_stub(room.namespace))
        room.create("half", {"bitfusion.io/gpu-50": "1"})
        room.create("stopped", {"bitfusion.io/gpu-amount": "2"})
        room.create("plain")
        before = {name: room.wait_running(name) for name in ("half", "stopped", "plain")}
        assert "auto-management/bitfusion" in room.template_annotations("half")
        room.stop("stopped")

        remove(cluster, "kubeflow")
        wait_until(lambda: all(each.processes[0].process.poll() == 0 for each in ours), "both have ended", 25)
        for name in ("half", "plain"):
            pod = room.pod(name)
            assert pod is not None
            assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
            assert pod["status"]["phase"] == "Running"
        for name in ("half", "plain"):
            room.stop(name)
        for name in ("half", "plain", "stopped"):
            room.start(name)
        room.create("new")
        room.wait_running("new")
