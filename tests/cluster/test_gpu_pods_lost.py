"""What a running cell shows when its GPU pod, node or cluster fails, what is left, and the next cell runs.

pytest -m long -s tests/cluster/test_gpu_pods_lost.py prints the table.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bitfusion_client.text_table import box
from tests.cluster.api_client import Object
from tests.cluster.gpu_cluster import GpuCluster, GpuNotebook, GpuUser, gpus_installed
from tests.cluster.live_kernel import LiveCell, LiveKernel
from tests.cluster.node import Node
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.apart, pytest.mark.timeout(1800)]

COUNTS = """
import time
print("begun", flush=True)
for _ in range({seconds}):
    time.sleep(1)
print("counted to {seconds}")
"""
FILLS = """
print("begun", flush=True)
kept = [bytearray(64 << 20) for _ in range(64)]
"""
MEMORY = "1Gi"
"""Of the notebook, and so of its GPU pods."""


@dataclass
class Row:
    """What was seen of one failure."""

    what: str
    cell: LiveCell
    left: str
    again_s: float | None


class Work:
    """A kernel whose pod is hit while a cell runs."""

    def __init__(self, gpus: GpuCluster, user: GpuUser, notebook: GpuNotebook, kernel: LiveKernel) -> None:
        self.gpus = gpus
        self.user = user
        self.notebook = notebook
        self.kernel = kernel
        self.rows: list[Row] = []
        self._restarts = 0

    def begin(self, code: str = COUNTS.format(seconds=600)) -> tuple[LiveCell, Object]:
        """A cell that runs, and its GPU pod."""
        cell = self.kernel.start(code)
        cell.until_shown("begun")
        self._restarts = self.kernel.restarts
        return cell, self.user.one_gpu_pod()

    def note(self, what: str, cell: LiveCell, pod: Object, limit_s: float = 15) -> Row:
        """The cell has ended: what is left of its pod, and whether the next cell runs."""
        name = pod["metadata"]["name"]
        began = time.monotonic()
        left = "nothing"
        try:
            wait_until(lambda: name not in self.names(), self.user.told_of_gpu_pods, limit_s)
            left += f" after {time.monotonic() - began:.0f} s"
        except AssertionError:
            left = f"the pod, {self.phase(name)}"
        self.wait_restarted()
        again = self.kernel.run("6 * 7")
        assert again.text.endswith("42\n"), again.all
        row = Row(what, cell, left, again.seconds)
        self.rows.append(row)
        return row

    def wait_restarted(self) -> None:
        """Until Jupyter has started the kernel anew: a cell that is sent before is lost."""
        self.kernel.wait_restarted(self._restarts)

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.user.gpu_pods()]

    def phase(self, name: str) -> str:
        for pod in self.user.gpu_pods():
            if pod["metadata"]["name"] == name:
                going = "Terminating, " if "deletionTimestamp" in pod["metadata"] else ""
                return going + str(pod["status"].get("phase"))
        return "gone"

    def agent(self, pod: Object) -> int:
        """The process id of its agent, as this machine counts."""
        uid = pod["metadata"]["uid"]
        for cgroup in self.gpus.gpu_node.cgroups():
            for folder, _, _ in os.walk(cgroup):
                if uid not in folder:
                    continue
                for pid in (Path(folder) / "cgroup.procs").read_text().split():
                    if b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        return int(pid)
        raise AssertionError(f"no agent of {pod['metadata']['name']}")


@pytest.fixture(scope="module")
def gpus(two_nodes: list[Node]) -> Iterator[GpuCluster]:
    with gpus_installed(two_nodes) as found:
        yield found


@pytest.fixture(scope="module")
def work(gpus: GpuCluster, pytestconfig: pytest.Config) -> Iterator[Work]:
    """The same notebook for all, since each must leave it well; prints the table of all."""
    with gpus.user() as user:
        limits = {"bitfusion.io/gpu-amount": "1", "memory": MEMORY}
        notebook = user.notebook("mine", limits)
        with LiveKernel(notebook.jupyter()) as kernel:
            found = Work(gpus, user, notebook, kernel)
            yield found
        capture = pytestconfig.pluginmanager.get_plugin("capturemanager")
        assert capture is not None
        with capture.global_and_fixture_disabled():
            print(f"\n{table(found.rows)}")


def table(rows: list[Row]) -> str:
    """What a person wants to know of each."""
    shown = []
    for row in rows:
        lines = row.cell.all.splitlines()
        said = [line.partition(": ")[2] for line in lines if line.startswith("Answer: ")] or lines[-1:]
        again = "-" if row.again_s is None else f"{row.again_s:.1f} s"
        shown.append((row.what, said[0], row.left, again))
    return box(["what", "the cell says", "left behind", "next cell"], shown)


def test_a_restarted_kubelet_disturbs_no_cell(work: Work) -> None:
    cell, pod = work.begin(COUNTS.format(seconds=15))
    work.gpus.gpu_node.kubelet.kill()
    time.sleep(2)
    work.gpus.gpu_node.kubelet.start()
    assert cell.finish(60).text.endswith("counted to 15\n"), cell.all
    work.gpus.gpus.wait_there()
    assert work.kernel.run("6 * 7").text.endswith("42\n")
    assert work.names() == [pod["metadata"]["name"]]
    work.rows.append(Row("kubelet restarted", cell, "the same pod, Running", None))


def test_an_api_server_that_stands_still_disturbs_no_cell(work: Work) -> None:
    cell, pod = work.begin(COUNTS.format(seconds=15))
    work.gpus.cluster.apiserver.freeze()
    try:
        time.sleep(10)
    finally:
        work.gpus.cluster.apiserver.thaw()
    assert cell.finish(60).text.endswith("counted to 15\n"), cell.all
    assert work.names() == [pod["metadata"]["name"]]
    work.rows.append(Row("API server stopped for 10 s", cell, "the same pod, Running", None))


def test_an_eviction_is_told(work: Work) -> None:
    cell, pod = work.begin()
    name, base = pod["metadata"]["name"], f"/api/v1/namespaces/{work.user.namespace}/pods"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    work.gpus.cluster.client.create(f"{base}/{name}/eviction", eviction)
    row = work.note("evicted (the node is drained)", cell.until_lost(30), pod)
    assert "evicted" in row.cell.all
    assert row.left.startswith("nothing")


def test_a_pod_that_somebody_deletes_is_told(work: Work) -> None:
    cell, pod = work.begin()
    name = pod["metadata"]["name"]
    work.gpus.cluster.client.delete(f"/api/v1/namespaces/{work.user.namespace}/pods/{name}")
    row = work.note("GPU pod deleted", cell.until_lost(30), pod)
    assert "deleted" in row.cell.all
    assert row.left.startswith("nothing")


@pytest.mark.parametrize(("number", "what"), [(signal.SIGKILL, "killed"), (signal.SIGSTOP, "stopped")])
def test_a_dead_or_frozen_agent_is_told_and_its_pod_deleted(work: Work, number: int, what: str) -> None:
    cell, pod = work.begin()
    os.kill(work.agent(pod), number)
    row = work.note(f"agent {what}", cell.until_lost(90), pod)
    assert row.left.startswith("nothing")


def test_memory_that_runs_out_is_told(work: Work) -> None:
    """A restart keeps the pod, whose agent lives."""
    cell, pod = work.begin(FILLS)
    cell.until_lost(60)
    work.wait_restarted()
    again = work.kernel.run("6 * 7")
    assert again.text.endswith("42\n"), again.all
    assert work.names() == [pod["metadata"]["name"]]
    left = "the same pod, for the next cell"
    work.rows.append(Row(f"more memory than {MEMORY}", cell, left, again.seconds))
    assert "because memory ran out" in cell.all
    work.kernel.run("%bitfusion release -y")


def test_a_lost_node_is_told_as_such_and_the_next_cell_queues(work: Work) -> None:
    cell, pod = work.begin()
    name, node = pod["metadata"]["name"], work.gpus.gpu_node
    with node.cut_off():
        node.kubelet.freeze()
        try:
            began = time.monotonic()
            cell.until_lost(60)
            took = time.monotonic() - began
            work.wait_restarted()
            again = work.kernel.start("6 * 7")
            again.until_shown("ait", 60)
            time.sleep(20)
            waits, left = again.all, work.phase(name)
        finally:
            node.kubelet.thaw()
    back = time.monotonic()
    assert again.finish(120).text.endswith("42\n"), again.all
    wait_until(lambda: name not in work.names(), work.user.told_of_gpu_pods, 60)
    row = Row(f"node lost (told after {took:.0f} s)", cell, f"the pod, {left}, until it is back", None)
    work.rows.append(row)
    took = time.monotonic() - back
    print(f"the next cell, while the node is lost:\n{waits}\ncomputed {took:.1f} s after it was back")
    assert node.name in cell.all
    assert "does not answer" in cell.all


def test_a_deleted_notebook_leaves_no_gpu_pod(work: Work) -> None:
    cell, pod = work.begin()
    work.notebook.annotate({"kubeflow-resource-stopped": "2026-11-26T00:00:00Z"})
    wait_until(lambda: work.notebook.pod() is None, work.notebook.told, 60)
    began = time.monotonic()
    wait_until(lambda: pod["metadata"]["name"] not in work.names(), work.user.told_of_gpu_pods, 20)
    cell.text, cell.error = "(its server is gone)", ""
    left = f"nothing {time.monotonic() - began:.1f} s after the notebook's pod"
    work.rows.append(Row("notebook stopped or deleted", cell, left, None))
