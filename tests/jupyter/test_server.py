"""Under a real Jupyter server, whose restarter watches: every death is survived, nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.jupyter.conftest import FIRST_CELL, OURS
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import Cell, Client, poll, without_pytest
from tests.jupyter.processes import Process, end_of, processes_with

LIMIT = 5.0  # the restarter looks every 3 s


class Server:
    """A jupyter_server process and the kernels it runs."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.runtime = folder / "runtime"
        self.log = folder / "server.log"
        self.clients: list[Client] = []
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "jupyter_server",
                        "--no-browser",
                        "--allow-root",
                        f"--port={port}",
                    ),
                    *("--ip=127.0.0.1", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"),
                    "--ServerApp.disable_check_xsrf=True",
                ],
                env=without_pytest(os.environ | {"JUPYTER_RUNTIME_DIR": str(self.runtime)}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        assert poll(self.answers, 30, 0.1), self.log.read_text()

    def answers(self) -> bool:
        try:
            self.ask("GET", "/api/status")
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=20) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def start_kernel(self, name: str) -> str:
        return str(self.ask("POST", "/api/kernels", {"name": name})["id"])

    def connect(self, kernel_id: str) -> Client:
        channels = BlockingKernelClient(connection_file=str(self.runtime / f"kernel-{kernel_id}.json"))
        channels.load_connection_file()
        channels.start_channels()
        client = Client(channels)
        self.clients.append(client)
        channels.wait_for_ready(timeout=30)
        return client

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def server(kernelspecs: Path, pool: Pool, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()
    assert end_of(pool.mark, 5) == []


def chain(server: Server, pool: Pool, holder: int | None) -> dict[str, Process]:
    """The kernel's processes by role; of front and keeper the front is the server's child."""
    roles: dict[str, Process] = {}
    for process in processes_with(pool.mark):
        if process.session == holder or process.pid == server.process.pid:
            continue
        role = process.role
        if role == "front" and process.parent != server.process.pid:
            role = "keeper"
        roles.setdefault(role, process)
    return roles


def running_cell(client: Client) -> Cell:
    cell = client.send("print('runs', flush=True)\nimport time; time.sleep(300)")
    client.pump(cell.stream, 15, "the running cell")
    return cell


@pytest.mark.parametrize("victim", ["front", "keeper", "wrapper", "launcher", "kernel"])
def test_killed_while_a_cell_runs(server: Server, pool: Pool, victim: str) -> None:
    kernel_id = server.start_kernel(FIRST_CELL)
    client = server.connect(kernel_id)
    cell = running_cell(client)
    before = chain(server, pool, None)
    old = set(before.values())
    os.kill(before[victim].pid, signal.SIGKILL)
    begin = time.monotonic()
    if victim in ("wrapper", "kernel"):
        client.finish(cell, timeout=2)
        assert "SIGKILL" in cell.error_text
    poll(lambda: not old & set(processes_with(pool.mark)) and not pool.leases(), LIMIT)
    assert time.monotonic() - begin < LIMIT + 0.5
    assert not old & set(processes_with(pool.mark))
    assert pool.leases() == []
    # the server's own restart brings a new kernel on the same connection file
    assert poll(lambda: "front" in chain(server, pool, None), LIMIT)
    client.channels.wait_for_ready(timeout=20)
    again = client.run("print('again')", timeout=20)
    assert (again.count, again.stream()) == (1, "again\n")
    server.ask("DELETE", f"/api/kernels/{kernel_id}")
    pool.wait_until_free(2)
    assert poll(lambda: not chain(server, pool, None), 2)


@pytest.mark.parametrize("victim", ["front", "keeper", "wrapper"])
def test_killed_while_waiting(server: Server, pool: Pool, victim: str) -> None:
    with pool.held() as holder:
        kernel_id = server.start_kernel(FIRST_CELL)
        client = server.connect(kernel_id)
        cell = client.send("1")
        client.pump(lambda: cell.of("display_data"), 10, "the notice")
        before = chain(server, pool, holder.pid)
        os.kill(before[victim].pid, signal.SIGKILL)
        if victim == "wrapper":
            client.finish(cell, timeout=2)
        else:
            assert poll(lambda: not set(before.values()) & set(processes_with(pool.mark)), LIMIT)
        assert poll(lambda: not pool.waiting(), LIMIT)
        assert poll(lambda: "front" in chain(server, pool, holder.pid), LIMIT)
        if victim != "wrapper":
            server.connect(kernel_id)  # the restarted one; deleting it in the middle of its start is an error
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
        assert poll(lambda: not chain(server, pool, holder.pid), 2)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("waiting", [False, True], ids=["running", "waiting"])
def test_killed_server_takes_everything_with_it(server: Server, pool: Pool, name: str, waiting: bool) -> None:
    if waiting:
        with pool.held() as holder:
            client = server.connect(server.start_kernel(name))
            cell = client.send("1")
            client.pump(lambda: cell.of("display_data"), 10, "the notice")
            server.process.kill()
            assert poll(lambda: not chain(server, pool, holder.pid), 2)
            assert pool.waiting() == []
    else:
        client = server.connect(server.start_kernel(name))
        running_cell(client)
        server.process.kill()
        assert poll(lambda: not chain(server, pool, None), 2)
        assert pool.leases() == []


@pytest.mark.parametrize("name", OURS)
def test_restart_and_interrupt_through_the_server(server: Server, pool: Pool, name: str) -> None:
    kernel_id = server.start_kernel(name)
    client = server.connect(kernel_id)
    cell = running_cell(client)
    server.ask("POST", f"/api/kernels/{kernel_id}/interrupt")
    client.finish(cell, timeout=3)
    assert cell.error["ename"] == "KeyboardInterrupt"
    server.ask("POST", f"/api/kernels/{kernel_id}/restart")
    client.channels.wait_for_ready(timeout=20)
    assert client.run("'cell' in globals()").count == 1
    assert poll(lambda: server.ask("GET", f"/api/kernels/{kernel_id}")["execution_state"] == "idle", 3)
