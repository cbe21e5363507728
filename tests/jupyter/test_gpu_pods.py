"""The kernel as it is over GPU pods: what a person sees of the wait, the place, the release and a death."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.jupyter.cells import notice_texts, running_cell, wait_for_death, wait_for_notice
from tests.jupyter.conftest import FIRST_CELL
from tests.jupyter.live_kernel import LiveKernel
from tests.pods.command.notebook import Notebook, notebook_in
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_in(cluster, tmp_path) as made:
        yield made


@pytest.fixture
def kernel(
    kernelspecs: Path, notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveKernel]:
    for name, text in notebook.environment().items():
        if name not in ("PATH", "HOME"):
            monkeypatch.setenv(name, text)
    monkeypatch.setenv("BITFUSION_CLIENT", notebook.command)
    made = LiveKernel(FIRST_CELL, cwd=str(tmp_path))
    made.connect()
    yield made
    made.stop()
    wait_until(lambda: not notebook.gpu_pods(), "the end of its pods", 15)


def test_a_cell_runs_in_a_pod_and_release_gives_it_back(kernel: LiveKernel, notebook: Notebook) -> None:
    cell = kernel.run("import os; print(os.environ['HOSTNAME'])")
    assert cell.stream().startswith("digits-0-gpu-"), (cell.error_text, kernel.run("%bitfusion log").stream())
    told = cell.stream("stderr")
    assert told.count("has no CUDA libraries") == 1, "this machine has none"
    assert kernel.run("print(2)").stream("stderr") == ""
    assert notebook.node.held == 1
    status = kernel.run("%bitfusion").stream()
    assert "Server      gpu-node\n" in status, status
    table = kernel.run("%bitfusion pool").of("display_data")[0]["content"]["data"]["text/plain"].splitlines()
    assert table[1].split() == ["gpu-node", "0", "held", "1"], table
    assert table[2].strip().startswith(f"held by {notebook.one_gpu_pod()}: -n 1, since "), table
    assert "may not see the cluster's nodes" in table[-1], table
    assert kernel.run("%bitfusion release -y").stream().startswith("1 GPU given back.")
    assert not notebook.gpu_pods()
    wait_until(lambda: notebook.node.held == 0, "the node hears of it")
    assert kernel.run("print(1)").stream() == "1\n"


def test_the_wait_tells_the_schedulers_reason_and_can_be_given_up(
    kernel: LiveKernel, notebook: Notebook
) -> None:
    others = [notebook.start("run", "-n", "1", "--", "sleep", "600") for _ in range(2)]
    wait_until(lambda: notebook.node.held == 2, "both are taken")
    cell = kernel.client.send("print('mine')")
    notice = wait_for_notice(kernel.client, cell, "no free GPU")["data"]["text/plain"]
    assert "osition" not in notice, notice
    kernel.interrupt()
    assert "cancelled" in kernel.client.finish(cell, 15).error_text
    wait_until(lambda: len(notebook.gpu_pods()) == 2, "its pod is gone")
    again = kernel.client.send("print('mine')")
    wait_for_notice(kernel.client, again, "no free GPU")
    others[0].terminate()
    assert kernel.client.finish(again, 30).stream() == "mine\n"
    for other in others:
        other.terminate()
        other.finish()


def test_a_restart_keeps_the_pod(kernel: LiveKernel, notebook: Notebook) -> None:
    kernel.run("x = 1")
    name = notebook.one_gpu_pod()
    kernel.restart()
    assert kernel.run("print('x' in globals())").stream() == "False\n"
    assert notebook.one_gpu_pod() == name


def test_a_pod_that_is_taken_away_is_told_in_the_cell(kernel: LiveKernel, notebook: Notebook) -> None:
    cell = running_cell(kernel.client)
    name = notebook.one_gpu_pod()
    notebook.cluster.client.delete(f"/api/v1/namespaces/{notebook.namespace}/pods/{name}")
    wait_for_death(kernel.client, cell, 20)
    assert "The pod in which this kernel ran has ended" in cell.error_text
    wait_until(lambda: notebook.node.held == 0, "the node hears of it")


def test_another_size_that_fits_beside_is_another_pod(kernel: LiveKernel, notebook: Notebook) -> None:
    notebook.node.gpus = 3
    kernel.run("x = 1")
    done = kernel.run("%bitfusion request -n 2 --now -y")
    assert not done.of("error"), done.error_text
    assert kernel.run("print('x' in globals())").stream() == "False\n"
    (pod,) = notebook.gpu_pods()
    assert pod["metadata"]["annotations"]["bitfusion.io/holds"] == "-n 2"
    assert notebook.node.held == 2


@pytest.mark.long  # half a minute of waiting
def test_another_size_that_is_not_to_be_had_leaves_the_pod(kernel: LiveKernel, notebook: Notebook) -> None:
    kernel.run("x = 1")
    done = kernel.run("%bitfusion request -n 2 --now -y", 60)
    assert "not to be had within 30 s: the only node has no free GPU" in done.error_text
    assert kernel.run("print('x' in globals())").stream() == "True\n"
    assert len(notebook.gpu_pods()) == 1


@pytest.mark.long  # the shortest idle_release that there is, twice
@pytest.mark.timeout(300)
def test_an_idle_kernel_gives_its_pod_back_unless_something_computes_in_it(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("BITFUSION_IDLE_RELEASE", "1m")
    kernel: LiveKernel = request.getfixturevalue("kernel")
    cell = kernel.run(
        "import subprocess, sys\n"
        "busy = 'import time\\nend = time.monotonic() + 65\\nwhile time.monotonic() < end: pass'\n"
        "child = subprocess.Popen([sys.executable, '-c', busy])"
    )
    kernel.client.settle(62)
    assert not any("gives its GPU back" in text for text in notice_texts(cell))
    assert notebook.node.held == 1
    kernel.client.pump(
        lambda: any("This kernel gave its GPU back at" in text for text in notice_texts(cell)),
        90,
        "the release",
        lambda: notice_texts(cell),
    )
    assert "a thread or child process that computes" in notice_texts(cell)[-1]
    assert not notebook.gpu_pods()
    wait_until(lambda: notebook.node.held == 0, "the node hears of it")
    assert kernel.run("print('cell' in globals())").stream() == "False\n"


def test_the_end_of_the_wrapper_is_the_end_of_the_pods_gpu(kernel: LiveKernel, notebook: Notebook) -> None:
    cell = running_cell(kernel.client)
    os.kill(notebook.node.agent_pid(notebook.one_gpu_pod()), signal.SIGKILL)
    wait_for_death(kernel.client, cell, 20)
    wait_until(lambda: not notebook.gpu_pods(), "the pod is deleted", 15)
