"""`bitfusion list_gpus`, `smi` and `health`: the texts, and with a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.command.client_reports import parse_health, parse_list_gpus, parse_waiting
from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_pods.command.reports import NO_OTHERS, list_gpus_text, smi_text
from bitfusion_pods.places.gpu_nodes import GpuNode, Holding
from tests.cluster.cluster import Cluster
from tests.pods.command.notebook import EDIT, VIEW, Notebook, notebook_in

pytestmark = pytest.mark.timeout(120)

NOW = 1_790_000_000.0
IDLE = KernelActivity("idle", NOW - 700, NOW - 725)
NODES = [
    GpuNode("n1", 1, "NVIDIA-A100", 40960, ()),
    GpuNode("n2", 2, "", 0, (Holding("digits-0-gpu-1", "n2", 1, "-n 1", NOW, IDLE),)),
]
WAITING = [Holding("mnist-0-gpu-2", "", 1, "-n 1 -p 0.5", NOW)]


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_in(cluster, tmp_path) as made:
        yield made


def test_the_report_is_read_as_every_clients() -> None:
    text = list_gpus_text(NODES, WAITING, True, NOW)
    first, second = parse_list_gpus(text)
    assert (first.address, first.tasks, [gpu.free_mib for gpu in first.gpus]) == ("n1", 0, [40960])
    assert second.tasks == 1
    assert [bool(gpu.holders) for gpu in second.gpus] == [True, False]
    assert second.gpus[0].holders[0].endswith(", idle 12 min 05 s")
    (waiting,) = parse_waiting(text)
    assert waiting.startswith("mnist-0-gpu-2: -n 1 -p 0.5, since ")
    assert "position" not in text  # of who waits for the scheduler nobody knows one


def test_of_nodes_that_are_seen_it_is_said_who_is_not() -> None:
    assert list_gpus_text(NODES, [], True, NOW).endswith(f"\n- {NO_OTHERS}\n")


def test_what_may_not_be_seen_is_said() -> None:
    for text in (list_gpus_text([], [], False, NOW), smi_text([], [], False, NOW)):
        assert "may not see the cluster's nodes" in text


def test_tables_show_nodes_and_pods() -> None:
    text = smi_text(NODES, WAITING, True, NOW)
    for word in ("NVIDIA-A100", "digits-0-gpu-1", "mnist-0-gpu-2", "waits", "idle 12 min 05 s"):
        assert word in text
    assert len({len(line) for line in text.splitlines()[:5]}) == 1


def test_a_holder_is_listed_while_it_holds(notebook: Notebook) -> None:
    holder = notebook.start("run", "-n", "1", "--", "sleep", "600")
    name = notebook.one_gpu_pod()
    (server,) = parse_list_gpus(notebook.run("list_gpus").said.decode())
    assert (server.address, server.tasks) == ("gpu-node", 1)
    assert server.gpus[0].holders[0].startswith(f"held by {name}: -n 1")
    holder.terminate()
    holder.finish()
    assert "no GPU pod in this namespace" in notebook.run("list_gpus").said.decode()


def test_health_of_a_pod_that_may_all_is_well(notebook: Notebook) -> None:
    done = notebook.run("health")
    assert done.returncode == 0, done.said.decode()
    report = parse_health(done.said.decode())
    assert report.totals["FATAL"] == 0
    assert "a pod with 1 GPU would be admitted" in done.said.decode()


def test_health_tells_what_a_viewer_lacks(cluster: Cluster, tmp_path: Path) -> None:
    with notebook_in(cluster, tmp_path, rules=VIEW) as notebook:
        done = notebook.run("health")
    assert done.returncode == 1
    wrong = [line for line in done.said.decode().splitlines() if line.startswith("[FATAL")]
    for resource in ("pods", "secrets"):
        assert any(f"right to create {resource} in" in line and "kubeflow-edit" in line for line in wrong)


def test_health_tells_what_is_worse_without_a_right(cluster: Cluster, tmp_path: Path) -> None:
    with notebook_in(cluster, tmp_path, rules=EDIT[:2]) as notebook:
        done = notebook.run("health")
    assert done.returncode == 0, done.said.decode()
    assert "[MARGINAL] Check right to get statefulsets" in done.said.decode()


@pytest.mark.parametrize("limited", ["requests.nvidia.com/gpu", "count/secrets"])
def test_health_tells_of_a_quota_that_no_pod_fits(notebook: Notebook, limited: str) -> None:
    notebook.limit("none", limited, 0)
    done = notebook.run("health")
    assert "[FATAL   ] Check a GPU pod: " in done.said.decode()
    assert "quota" in done.said.decode()
