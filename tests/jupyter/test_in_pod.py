"""Notebooks of one pod: they share its budget, and its end gives everything back to a pool on the network."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import client_text, servers_text
from tests.jupyter.cells import running_cell, wait_for_notice
from tests.jupyter.conftest import FIRST_CELL, HALF, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Server
from tests.jupyter.live_kernel import LiveKernel
from tests.kernel.pod.fake_pod import FakePod
from tests.pool.service.tls_client import HOST, NetworkService
from tests.support.namespaces import as_process_1
from tests.support.waiting import wait_until

GIVEN_BACK_S = 5.0


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePod:
    """The kernels of this test run in a pod with one GPU."""
    made = FakePod(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def notebook(launch: Launch, name: str, kernel: str = FIRST_CELL) -> LiveKernel:
    """The kernel of a notebook, as JupyterLab starts it."""
    return launch(kernel, env=os.environ | {"JPY_SESSION_NAME": f"work/{name}"})


def shares(pool: Pool) -> list[int]:
    """MiB of each lease in the pool."""
    return sorted(lease["devices"][0]["memory_mib"] for lease in pool.leases())


@pytest.mark.long
def test_half_is_chosen_by_one_and_the_other_half_left_for_the_next(
    launch: Launch, pool: Pool, pod: FakePod
) -> None:
    chosen = notebook(launch, "chosen.ipynb", HALF)
    chosen.run("1")
    other = notebook(launch, "other.ipynb")
    assert (
        other.run("import os; print(os.environ['BITFUSION_POOL_DEVICES'].count('\"id\"'))").stream() == "1\n"
    )
    assert pod.held() == [GpuRequest(1, 0.5), GpuRequest(1, 0.5)]
    assert shares(pool) == [8080, 8080]
    told = other.run("%bitfusion").stream()
    assert "Request     1 GPU × 50 %" in told
    assert "Left        nothing" in told
    chosen.stop()
    wait_until(lambda: len(pod.held()) == 1, "the first one's half is given back")
    other.restart()
    other.run("1")
    assert pod.held() == [GpuRequest(1)], "a restart takes what is left then"


def test_the_cell_of_the_second_waits_for_the_first_notebook_and_runs_when_that_is_shut_down(
    launch: Launch, pool: Pool, pod: FakePod
) -> None:
    first = notebook(launch, "train digits.ipynb")
    first.run("1")
    second = notebook(launch, "second.ipynb")
    second.connect()
    cell = second.client.send("print('runs')")
    wait_for_notice(second.client, cell, "  train digits.ipynb (1 GPU, since ")
    assert pool.waiting() == [], "the pool has not been asked"
    first.stop()
    second.client.finish(cell, 10)
    assert cell.stream() == "runs\n"
    assert cell.count == 1
    assert [output["output_type"] for output in cell.saved_outputs()] == ["stream"]
    second.stop()
    wait_until(lambda: pod.entries() == [], pod.entries)


@pytest.mark.long
def test_another_size_counts_beside_the_old_one_and_alone_afterwards(
    launch: Launch, pool: Pool, pod: FakePod
) -> None:
    pool.write(gpus=2)
    kernel = notebook(launch, "mine.ipynb", HALF)
    kernel.run("x = 1")
    smaller = kernel.run("%bitfusion request -p 0.25 --now -y").stream()
    assert "1 GPU × 50 % given back.\n" in smaller
    assert pod.held() == [GpuRequest(1, 0.25)]
    whole = kernel.run("%bitfusion request -p 1 --now -y").stream()
    assert "1 GPU × 25 % given back. Asking for 1 GPU" in whole, (
        "the pool has room for both, the budget has not"
    )
    assert pod.held() == [GpuRequest(1, 1.0)]
    assert kernel.run("print('x' in globals())").stream() == "False\n"
    kernel.run("%bitfusion request -p 0.5 --now -y")
    other = notebook(launch, "other.ipynb", HALF)
    other.run("1")
    cell = kernel.run("%bitfusion request -n 2 -p 1 --now -y")
    assert cell.error["ename"] == "OverBudget"
    assert len(pod.held()) == 2
    kernel.stop()
    other.stop()
    wait_until(lambda: pod.entries() == [], pod.entries)


@pytest.mark.long
def test_a_restart_keeps_the_budget_and_a_release_gives_it_to_the_notebook_that_waits(
    launch: Launch, pool: Pool, pod: FakePod
) -> None:
    first = notebook(launch, "first.ipynb")
    first.run("1")
    second = notebook(launch, "second.ipynb")
    second.connect()
    waiting = second.client.send("print('second')")
    wait_for_notice(second.client, waiting, "  first.ipynb (1 GPU, since ")
    first.restart()
    assert first.run("6 * 7").result == "42"
    assert waiting.reply is None
    first.run("%bitfusion release -y")
    second.client.finish(waiting, 10)
    assert waiting.stream() == "second\n"
    again = first.client.send("print('first')")
    wait_for_notice(first.client, again, "  second.ipynb (1 GPU, since ")
    second.stop()
    first.client.finish(again, 10)
    assert again.stream() == "first\n"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NetworkService]:
    """A pool on the network, whose token this test's home has."""
    base = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    made = NetworkService(base)
    made.start()
    home = tmp_path / "home"
    (home / ".bitfusion").mkdir(parents=True)
    (home / ".bitfusion/servers.conf").write_text(servers_text([Address(HOST, made.port)]))
    (home / ".bitfusion/client.yaml").write_text(client_text(made.token("team-a")))
    shutil.copy(made.authority, home / ".bitfusion/ca.crt")
    for name in ("BITFUSION_POOL_DIR", "BITFUSION_POOL_CONFIG", "BITFUSION_POOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    # Process 1 takes what is left with it, private folders and all, as the end of a container does.
    (base / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / "run"))
    yield made
    made.end()
    shutil.rmtree(base)


@pytest.mark.long
@pytest.mark.timeout(90)
def test_a_pod_that_is_stopped_has_given_everything_back_within_seconds(
    service: NetworkService, pod: FakePod, kernelspecs: Path, tmp_path: Path
) -> None:
    """What the kubelet does at a stop, a cull, a drain and an eviction: SIGTERM for process 1."""
    server = Server(tmp_path, as_process_1)
    try:
        client = server.connect(server.start_kernel(HALF))
        running_cell(client)
        other = server.connect(server.start_kernel(FIRST_CELL))
        running_cell(other)
        entries = service.entries()
        assert [entry.request for entry in entries] == [GpuRequest(1, 0.5)] * 2
        assert {entry.holder.user for entry in entries} == {"team-a"}
        waiting = server.connect(server.start_kernel(FIRST_CELL))
        cell = waiting.send("1")
        wait_for_notice(waiting, cell, "position 1 of 1 among those that wait")
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        wait_until(lambda: service.entries() == [], lambda: service.entries(), GIVEN_BACK_S)
        wait_until(lambda: pod.entries() == [], lambda: pod.entries(), GIVEN_BACK_S)
        wait_until(lambda: server.process.poll() is not None, "the end of process 1", GIVEN_BACK_S)
    finally:
        server.stop()
