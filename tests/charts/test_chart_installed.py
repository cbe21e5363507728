"""Installed by helm and by kubectl on a real API server, upgraded, rolled back and taken away again.

Programs of ours run as processes (`StandIn`), with the rights that were installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.everything import everything
from tests.cluster.cluster import Cluster
from tests.cluster.helm import CHART, Helm
from tests.cluster.notebooks import Room
from tests.manifests.built import CONTROLLER, INJECTOR, MANIFESTS, PROCESSES, Object
from tests.manifests.installed import kubeflow_namespace
from tests.manifests.stand_in import StandIn
from tests.support.objects import objects_of
from tests.support.waiting import wait_until

OPTIONS = ("-n=kubeflow", "--no-hooks")
"""Hooks are pods, which nobody runs here."""
BEFORE = Path(__file__).parents[1] / "manifests" / "before" / "e122290.yaml"
APART = [pytest.mark.long, pytest.mark.apart]
OTHERS = [pytest.param(each, marks=APART) for each in ("simulated", "vmware")]
ENGINES = ["cluster-gpus", *OTHERS]


@pytest.fixture
def around(cluster: Cluster) -> Iterator[ExitStack]:
    """Kubeflow's namespace."""
    with ExitStack() as stack:
        stack.enter_context(kubeflow_namespace(cluster))
        yield stack


def serving(cluster: Cluster, around: ExitStack, folder: Path) -> list[StandIn]:
    """Controller and injector, as whatever Deployment there is tells them to run."""
    return [around.enter_context(StandIn(cluster, folder, "kubeflow", name=name)) for name in PROCESSES]


def all_serve(processes: list[StandIn]) -> None:
    wait_until(lambda: all(each.served for each in processes), "controller and injector serve", 60)


def made_by_programs() -> set[str]:
    names = (CONTROLLER, INJECTOR)
    return {f"leases kubeflow/{name}" for name in names} | {f"secrets kubeflow/{name}-ca" for name in names}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("by", ["helm", pytest.param("kubectl", marks=APART)])
@pytest.mark.timeout(180)
def test_nothing_is_left_when_it_is_taken_away(
    cluster: Cluster, helm: Helm, around: ExitStack, tmp_path: Path, by: str, engine: str
) -> None:
    before = everything(cluster)
    folder = str(MANIFESTS / "engines" / engine)
    processes = serving(cluster, around, tmp_path)
    if by == "helm":
        helm.run("install", "bitfusion", str(CHART), *OPTIONS, f"--set=engine={engine}")
    else:
        cluster.kubectl("apply", "-k", folder)
    all_serve(processes)
    there = everything(cluster)
    assert made_by_programs() <= there - before
    assert len(there - before) > 40

    if by == "helm":
        helm.run("uninstall", "bitfusion", *OPTIONS)
    else:
        cluster.kubectl("delete", "-k", folder)

    def left() -> str:
        return f"nothing is left: {sorted(everything(cluster) - before)}"

    wait_until(lambda: everything(cluster) <= before, left, 60)


def of_a_pool(item: Object) -> bool:
    """Whether an installation for GPU pods has no such object."""
    names = {"bitfusion-identity", "bitfusion-device-plugin", "bitfusion-pool"}
    metadata = item["metadata"]
    labels = metadata.get("labels", {})
    return not names.isdisjoint({labels.get("app.kubernetes.io/name"), metadata.get("namespace")})


def untouched(room: Room) -> Any:
    """Of a notebook what a restart, or a new pod, would change."""
    stateful_set, pod = room.stateful_set(), room.running_pod()
    return (
        stateful_set["metadata"]["generation"],
        stateful_set["spec"]["template"],
        pod["metadata"]["uid"],
        pod["spec"],
        pod["status"]["phase"],
    )


@pytest.mark.parametrize(
    "engine", [pytest.param("cluster-gpus", marks=APART), pytest.param("simulated", marks=APART)]
)
@pytest.mark.timeout(240)
def test_a_running_notebook_is_untouched_by_the_way_to_the_chart_and_back(
    cluster: Cluster, helm: Helm, around: ExitStack, tmp_path: Path, engine: str
) -> None:
    items = objects_of(BEFORE.read_text())
    if engine == "cluster-gpus":  # which had neither pool nor units
        items = [item for item in items if not of_a_pool(item)]
    manifests = tmp_path / "before.yaml"
    manifests.write_text(yaml.safe_dump_all(items))
    cluster.kubectl("apply", "-f", str(manifests))
    around.callback(cluster.kubectl, "delete", "--ignore-not-found", "-f", str(manifests))
    processes = serving(cluster, around, tmp_path)
    all_serve(processes)
    room = Room(cluster)
    around.enter_context(cluster.notebook_controller("1.8", room.namespace))
    around.enter_context(cluster.node_stub(room.namespace))
    room.create("mine", {"bitfusion.io/gpu-50": "1"})
    room.wait_running("mine")
    assert "auto-management/bitfusion" in room.template_annotations()
    before = untouched(room)

    install = ("upgrade", "--install", "bitfusion", str(CHART), *OPTIONS, f"--set=engine={engine}")
    helm.run(*install, "--take-ownership")
    all_serve(processes)
    assert untouched(room) == before
    helm.run(*install, "--set=replicas=3", "--set=extraArgs.controller={--log-level=debug}")
    all_serve(processes)
    assert untouched(room) == before
    helm.run("rollback", "bitfusion", "1", *OPTIONS)
    all_serve(processes)
    assert untouched(room) == before
    cluster.kubectl("apply", "-f", str(manifests))  # and all the way back
    all_serve(processes)
    assert untouched(room) == before

    helm.run("uninstall", "bitfusion", *OPTIONS)
    assert untouched(room) == before


@pytest.mark.long
def test_installing_again_keeps_what_a_program_has_written(
    cluster: Cluster, helm: Helm, around: ExitStack
) -> None:
    install = ("upgrade", "--install", "bitfusion", str(CHART), *OPTIONS, "--set=engine=simulated")
    around.callback(helm.run, "uninstall", "bitfusion", *OPTIONS)
    helm.run(*install)
    secret = "/api/v1/namespaces/kubeflow/secrets/bitfusion-issuer"
    cluster.client.merge(secret, {"data": {"client.yaml": "eA=="}})
    helm.run(*install, "--set=replicas=1")
    assert cluster.client.get(secret)["data"] == {"client.yaml": "eA=="}
