"""A kernel in a GPU pod loses a process, or its network: what the cell shows, and what is left.

The environment variable KILL_ROUNDS says how many rounds each kill has (1).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitfusion_client.pod.oom_kills import OomKills
from tests.cluster.cluster import Cluster
from tests.jupyter.cells import notice_texts, running_cell, wait_for_death
from tests.jupyter.chain import WHOLE, chain, chain_processes, wait_for_no_process
from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, KILL_ROUNDS
from tests.jupyter.live_kernel import LiveKernel
from tests.pods.command.notebook import Notebook, notebook_in
from tests.support.processes import freeze, thaw
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

MARK = "BITFUSION_LABEL"
FREE_WITHIN = {"proxy": 8.0, "kernel": 8.0}
"""Seconds until the GPU is free: of what Jupyter may restart it is kept for 4 s."""


class Kernels:
    """Kernels in GPU pods of one notebook, and all their processes by a mark in their environment."""

    def __init__(self, notebook: Notebook, folder: Path) -> None:
        self.notebook = notebook
        self.mark = f"{MARK}={folder.name}"
        self._folder = folder
        self._made: list[LiveKernel] = []

    def launch(self) -> LiveKernel:
        kernel = LiveKernel(FIRST_CELL, cwd=str(self._folder))
        self._made.append(kernel)
        kernel.connect()
        return kernel

    def stop(self) -> None:
        for kernel in self._made:
            kernel.stop()


@pytest.fixture
def kernels(
    cluster: Cluster, kernelspecs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kernels]:
    with notebook_in(cluster, tmp_path) as notebook:
        for name, text in notebook.environment().items():
            if name not in ("PATH", "HOME"):
                monkeypatch.setenv(name, text)
        monkeypatch.setenv("BITFUSION_CLIENT", notebook.command)
        made = Kernels(notebook, tmp_path)
        name, _, text = made.mark.partition("=")
        monkeypatch.setenv(name, text)
        yield made
        made.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", [*sorted(WHOLE), "agent"])
@pytest.mark.timeout(60 + 30 * KILL_ROUNDS)
def test_killed_while_a_cell_runs(kernels: Kernels, victim: str) -> None:
    node = kernels.notebook.node
    for _ in range(KILL_ROUNDS):
        kernel = kernels.launch()
        cell = running_cell(kernel.client)
        victims = chain(kernels, os.getpid())
        assert victims.keys() >= WHOLE
        pod = kernels.notebook.one_gpu_pod()
        os.kill(node.agent_pid(pod) if victim == "agent" else victims[victim].pid, signal.SIGKILL)
        if victim in ("wrapper", "kernel", "launcher", "agent"):
            wait_for_death(kernel.client, cell, 10)
            assert {"agent": "pod", "wrapper": "bitfusion run"}.get(victim, "") in cell.error_text
            if victim == "kernel" and OomKills(os.getpid()).number == 0:  # somebody counts
                assert "memory" not in cell.error_text
        wait_until(lambda: node.held == 0, "its GPU is free", FREE_WITHIN.get(victim, 5.0))
        wait_for_no_process(kernels, 5)
        kernel.stop()
        wait_until(lambda: not kernels.notebook.gpu_pods(), "the pod is deleted", 12)
    again = kernels.launch()
    cell = again.run("print(1)")
    assert cell.stream() == "1\n", (cell.kinds, cell.of("error"), again.run("%bitfusion log").stream())
    wait_until(lambda: len(kernels.notebook.gpu_pods()) == 1, "only the new pod is there")


def frozen(kernels: Kernels, kernel: LiveKernel, pod: str) -> str:
    """The agent stands still for good."""
    os.kill(kernels.notebook.node.agent_pid(pod), signal.SIGSTOP)
    return "pod"


def silent(kernels: Kernels, kernel: LiveKernel, pod: str) -> str:
    """The network takes nothing any more, in no direction, and says nothing of it."""
    kernels.notebook.node.relays[pod].still = True
    return "pod"


def silent_to_pod(kernels: Kernels, kernel: LiveKernel, pod: str) -> str:
    """The same in one direction only."""
    kernels.notebook.node.relays[pod].silent = "to pod"
    return "pod"


def silent_to_client(kernels: Kernels, kernel: LiveKernel, pod: str) -> str:
    """And in the other one."""
    kernels.notebook.node.relays[pod].silent = "to client"
    return "pod"


def half_open(kernels: Kernels, kernel: LiveKernel, pod: str) -> str:
    """The connection is reset, and what takes the next ones is not the pod."""
    relay = kernels.notebook.node.relays[pod]
    relay.refuse = "half-open"
    relay.cut()
    return "pod"


def deleted(kernels: Kernels, kernel: LiveKernel, pod: str) -> str:
    """By somebody."""
    path = f"/api/v1/namespaces/{kernels.notebook.namespace}/pods/{pod}"
    kernels.notebook.cluster.client.delete(path)
    return "deleted"


def _answer(cell: Cell) -> str:
    """What the cell says of the cause."""
    return cell.error_text.partition("Answer: ")[2].partition("\n")[0]


FAULTS = [frozen, silent, silent_to_pod, silent_to_client, half_open, deleted]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
@pytest.mark.timeout(180)
def test_a_pod_that_is_lost_is_told_and_deleted(
    kernels: Kernels, fault: Callable[[Kernels, LiveKernel, str], str]
) -> None:
    node = kernels.notebook.node
    kernel = kernels.launch()
    cell = running_cell(kernel.client)
    pod = kernels.notebook.one_gpu_pod()
    words = fault(kernels, kernel, pod)
    began = time.monotonic()
    wait_for_death(kernel.client, cell, 60)
    told = time.monotonic() - began
    assert words in cell.error_text
    assert "GPUs are gone" in cell.error_text
    wait_until(lambda: node.held == 0, lambda: node.log(pod), 15)
    wait_until(lambda: not kernels.notebook.gpu_pods(), "the pod is deleted", 15)
    wait_for_no_process(kernels, 10)
    words = _answer(cell)
    print(f"{fault.__name__}: told after {told:.1f} s | left behind: nothing | {words}")


GONE_WITHIN = 45.0
"""Seconds: silence is a loss after 10 s, and a lost connection is waited for for 30 s. A frozen supervisor
has no bound: it keeps what it has until it goes on."""


@pytest.mark.parametrize("victim", sorted(WHOLE))
@pytest.mark.timeout(240)
def test_what_is_frozen_holds_no_gpu_once_its_notebook_is_shut_down(kernels: Kernels, victim: str) -> None:
    """And is all that is left, until it goes on."""
    node = kernels.notebook.node
    kernel = kernels.launch()
    cell = running_cell(kernel.client)
    victims = chain(kernels, os.getpid())
    pod = kernels.notebook.one_gpu_pod()
    frozen, began = victims[victim], time.monotonic()
    freeze(frozen.pid)
    try:
        kernel.client.settle(3)
        if victim != "wrapper":  # its agent hears nothing any more; of the others nobody misses a word
            assert node.held == 1
            kernel.stop()
        if victim == "supervisor":  # which alone knows that the notebook is gone
            time.sleep(5)
            assert node.held == 1
            thaw(frozen.pid)
        wait_until(lambda: node.held == 0, lambda: node.log(pod), GONE_WITHIN)
        free = time.monotonic() - began
        settled = {process.pid for process in chain_processes(kernels, os.getpid())}
    finally:
        with contextlib.suppress(ProcessLookupError):
            thaw(frozen.pid)
    words = "shut down"
    if victim == "wrapper":
        wait_for_death(kernel.client, cell, 15)
        words = _answer(cell)
        kernel.stop()
    wait_for_no_process(kernels, 15)
    left = [role for role, each in victims.items() if each.pid in settled]
    objects = len(kernels.notebook.gpu_pods())
    print(
        f"frozen {victim}: GPU free after {free:.1f} s | left then: {', '.join(left) or 'nothing'} | "
        f"after SIGCONT: no process, {objects} ended pods | {words}"
    )
    again = kernels.launch()
    assert again.run("print(1)").stream() == "1\n"
    wait_until(lambda: len(kernels.notebook.gpu_pods()) == 1, "only the new pod is there")


@pytest.mark.timeout(120)
def test_a_connection_that_is_cut_costs_a_cell_nothing(kernels: Kernels) -> None:
    kernel = kernels.launch()
    cell = kernel.client.send(
        "import time\nfor number in range(600):\n    print(number, flush=True)\n    time.sleep(0.005)"
    )
    kernel.client.pump(lambda: "50\n" in cell.stream(), 20, "its output")
    relay = kernels.notebook.node.relays[kernels.notebook.one_gpu_pod()]
    for _ in range(3):
        relay.cut()
        kernel.client.settle(0.4)
    assert kernel.client.finish(cell, 30).stream() == "".join(f"{number}\n" for number in range(600))
    assert not any("out of reach" in text for text in notice_texts(cell))


@pytest.mark.timeout(120)
def test_a_network_that_is_away_for_seconds_is_told_and_comes_back(kernels: Kernels) -> None:
    kernel = kernels.launch()
    kernel.run("x = 1")
    relay = kernels.notebook.node.relays[kernels.notebook.one_gpu_pod()]
    cell = kernel.client.send("import time; time.sleep(25); print('there')")
    kernel.client.pump(lambda: cell.of("execute_input"), 10, "its begin")
    relay.still = True
    kernel.client.settle(16)
    relay.still = False
    kernel.client.pump(lambda: cell.done or cell.of("error"), 40, "its end")
    assert not cell.of("error"), (cell.error_text, kernels.notebook.node.log(kernels.notebook.one_gpu_pod()))
    assert cell.stream() == "there\n"
    assert kernel.run("x").result == "1"
