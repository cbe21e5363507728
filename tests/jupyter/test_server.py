"""Under a real Jupyter server, whose restarter watches: every death is survived, nothing stays behind.

The environment variable KILL_ROUNDS says how many rounds each kill has (1); `-rP` shows the slowest of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.jupyter.conftest import OURS, SERVER_KILL_ROUNDS
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import Cell, Client, poll, without_pytest
from tests.jupyter.processes import Process, end_of, processes_with

LIMIT = 5.0  # the restarter looks every 3 s

# They would take half of the server's start, and have no part in what becomes of kernels.
NO_PROXYENDS = dict.fromkeys(
    ("jupyterlab", "jupyter_lsp", "notebook_shim", "jupyter_server_terminals"), False
)


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
                    *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
                    *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
                    *("--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"),
                    *(f"--ServerApp.root_dir={folder}", f"--ServerApp.jpserver_extensions={NO_PROXYENDS}"),
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

    def wait_for_answer(self, client: Client) -> None:
        """Until a restarted kernel speaks to a client it already had.

        Not `wait_for_ready`, which gives up when the heart of the dead kernel is missed meanwhile.
        """

        def answers() -> bool:
            asked = client.ask("kernel_info_request")
            with contextlib.suppress(AssertionError):
                client.pump(lambda: asked in client.replies and client.messages_for(asked), 1, "an answer")
                return True
            return False

        if not poll(answers, 20):
            raise AssertionError(f"the restarted kernel does not answer\n{self.log.read_text()[-4000:]}")

    def drop(self, client: Client) -> None:
        self.clients.remove(client)
        client.close()

    def delete(self, kernel_id: str, client: Client) -> None:
        self.drop(client)
        self.ask("DELETE", f"/api/kernels/{kernel_id}")

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
    """The kernel's processes by role; of proxy and supervisor the proxy is the server's child."""
    roles: dict[str, Process] = {}
    for process in processes_with(pool.mark):
        if process.session == holder or process.pid == server.process.pid:
            continue
        role = process.role
        if role == "proxy" and process.parent != server.process.pid:
            role = "supervisor"
        roles.setdefault(role, process)
    return roles


def pids(server: Server, pool: Pool, holder: int | None) -> set[int]:
    """The kernel's processes; an orphan stays the same process under its new parent."""
    found = processes_with(pool.mark)
    return {process.pid for process in found if process.session != holder} - {server.process.pid}


def ids(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["id"] for entry in entries}


def running_cell(client: Client) -> Cell:
    cell = client.send(
        "import subprocess, time\nchild = subprocess.Popen(['sleep', '300'])\n"
        "print('runs', flush=True)\ntime.sleep(300)"
    )
    client.pump(cell.stream, 15, "the running cell")
    return cell


def waiting_cell(client: Client) -> Cell:
    cell = client.send("1")
    client.pump(lambda: cell.of("display_data"), 10, "the notice")
    return cell


def seconds_until(condition: Callable[[], bool], since: float) -> float:
    poll(condition, max(0.0, since + LIMIT - time.monotonic()))
    assert condition(), f"not after {LIMIT} s"
    return time.monotonic() - since


def kill_while_a_cell_runs(server: Server, pool: Pool, name: str, victim: str) -> float:
    """One round; seconds until neither process nor lease was left."""
    kernel_id = server.start_kernel(name)
    client = server.connect(kernel_id)
    cell = running_cell(client)
    roles, old, leases = chain(server, pool, None), pids(server, pool, None), ids(pool.leases())
    assert {"proxy", "supervisor", "wrapper", "launcher", "kernel"} <= roles.keys()
    assert len(leases) == 1
    os.kill(roles[victim].pid, signal.SIGKILL)
    begin = time.monotonic()
    if victim in ("wrapper", "kernel"):
        client.finish(cell, timeout=2)
        assert cell.status == "error"
        assert "SIGKILL" in cell.error_text
        assert ("bitfusion run" if victim == "wrapper" else "kernel") in cell.error_text
    seconds_until(lambda: not old & pids(server, pool, None), begin)
    seconds = seconds_until(lambda: not leases & ids(pool.leases()), begin)
    # the server's own restart brings a new kernel on the same connection file
    assert poll(lambda: "proxy" in chain(server, pool, None), LIMIT)
    server.wait_for_answer(client)
    again = client.run("print('again')", timeout=20)
    assert again.status == "ok", again.error_text
    assert (again.count, again.stream()) == (1, "again\n")
    server.delete(kernel_id, client)
    pool.wait_until_free(2)
    assert poll(lambda: not pids(server, pool, None), 2)
    return seconds


def kill_while_waiting(server: Server, pool: Pool, holder: int, name: str, victim: str) -> float:
    """One round; seconds until neither process nor place in the queue was left."""
    held = ids(pool.leases())
    kernel_id = server.start_kernel(name)
    client = server.connect(kernel_id)
    cell = waiting_cell(client)
    roles, old, places = chain(server, pool, holder), pids(server, pool, holder), ids(pool.waiting())
    assert roles.keys() == {"proxy", "supervisor", "wrapper"}, "no launcher and no kernel without a GPU"
    assert len(places) == 1
    os.kill(roles[victim].pid, signal.SIGKILL)
    begin = time.monotonic()
    if victim == "wrapper":
        # nothing was held or lost: the cell is told, and the kernel lives to try again
        client.finish(cell, timeout=2)
        assert cell.status == "error"
        assert "SIGKILL" in cell.error_text
        assert "The `bitfusion` client failed" in cell.error_text
        old = {roles["wrapper"].pid}
    seconds_until(lambda: not old & pids(server, pool, holder), begin)
    seconds = seconds_until(lambda: not places & ids(pool.waiting()), begin)
    assert ids(pool.leases()) == held
    if victim != "wrapper":
        assert poll(lambda: "proxy" in chain(server, pool, holder), LIMIT)
        # the restarted one; deleting it in the middle of its start is an error
        server.drop(client)
        client = server.connect(kernel_id)
    waiting_cell(client)
    server.delete(kernel_id, client)
    assert poll(lambda: not pids(server, pool, holder), 2)
    assert pool.waiting() == []
    assert ids(pool.leases()) == held
    return seconds


@pytest.mark.parametrize("victim", ["proxy", "supervisor", "wrapper", "launcher", "kernel"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 20 * SERVER_KILL_ROUNDS)
def test_killed_while_a_cell_runs(server: Server, pool: Pool, name: str, victim: str) -> None:
    seconds = [kill_while_a_cell_runs(server, pool, name, victim) for _ in range(SERVER_KILL_ROUNDS)]
    print(f"{len(seconds)} rounds, the slowest {max(seconds):.2f} s")


@pytest.mark.parametrize("victim", ["proxy", "supervisor", "wrapper"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 20 * SERVER_KILL_ROUNDS)
def test_killed_while_waiting(server: Server, pool: Pool, name: str, victim: str) -> None:
    with pool.held() as holder:
        seconds = [
            kill_while_waiting(server, pool, holder.pid, name, victim) for _ in range(SERVER_KILL_ROUNDS)
        ]
    print(f"{len(seconds)} rounds, the slowest {max(seconds):.2f} s")


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("waiting", [False, True], ids=["running", "waiting"])
def test_killed_server_takes_everything_with_it(server: Server, pool: Pool, name: str, waiting: bool) -> None:
    if waiting:
        with pool.held() as holder:
            waiting_cell(server.connect(server.start_kernel(name)))
            server.process.kill()
            assert poll(lambda: not chain(server, pool, holder.pid), 2)
            assert pool.waiting() == []
    else:
        running_cell(server.connect(server.start_kernel(name)))
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
    server.wait_for_answer(client)
    assert client.run("'cell' in globals()").count == 1
    assert poll(lambda: server.ask("GET", f"/api/kernels/{kernel_id}")["execution_state"] == "idle", 3)
