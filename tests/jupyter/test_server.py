"""Under a real Jupyter server, whose restarter watches: every death is survived, nothing stays behind.

The environment variable KILL_ROUNDS says how many rounds each kill has (1).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.cells import running_cell, wait_for_death, waiting_cell
from tests.jupyter.chain import WAITING, WHOLE, chain, chain_processes, wait_for_no_process
from tests.jupyter.conftest import KILL_ROUNDS, OURS
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Server
from tests.support.processes import Process
from tests.support.waiting import Deadline, wait_until

LIMIT_S = 5.0  # the restarter looks every 3 s


@pytest.fixture
def server(kernelspecs: Path, pool: Pool, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()
    wait_for_no_process(pool, 5)


class Kernels:
    """The only kernel that a server runs at a time, as its processes."""

    def __init__(self, server: Server, pool: Pool, holder: int | None = None) -> None:
        self._of = (pool, server.process.pid, holder)

    def roles(self) -> dict[str, Process]:
        return chain(*self._of)

    def pids(self) -> set[int]:
        return {process.pid for process in chain_processes(*self._of)}

    def wait_for_the_end_of(self, pids: set[int], limit: float | Deadline) -> None:
        pool, server, holder = self._of
        wait_for_no_process(pool, limit, server, holder, among=pids)

    def wait_for_no_process(self, limit: float | Deadline) -> None:
        pool, server, holder = self._of
        wait_for_no_process(pool, limit, server, holder)

    def wait_for_the_restarted_one(self) -> None:
        wait_until(lambda: "proxy" in self.roles(), "the restarted kernel", LIMIT_S)


def ids(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["id"] for entry in entries}


@pytest.mark.parametrize("victim", ["kernel", "proxy"])
def test_a_size_that_was_asked_for_survives_a_death_and_the_servers_restart(
    server: Server, pool: Pool, victim: str
) -> None:
    kernels = Kernels(server, pool)
    kernel_id = server.start_kernel("bitfusion")
    client = server.connect(kernel_id)
    client.run("%bitfusion request -p 0.25")
    running_cell(client)
    old = kernels.pids()
    os.kill(kernels.roles()[victim].pid, signal.SIGKILL)
    kernels.wait_for_the_end_of(old, LIMIT_S)
    kernels.wait_for_the_restarted_one()
    again = server.connect(kernel_id)
    assert again.run("%bitfusion request").stream() == "The next start asks for 1 GPU × 25 %.\n"


def kill_while_a_cell_runs(server: Server, pool: Pool, name: str, victim: str) -> None:
    """One round."""
    kernels = Kernels(server, pool)
    kernel_id = server.start_kernel(name)
    client = server.connect(kernel_id)
    cell = running_cell(client)
    roles, old, leases = kernels.roles(), kernels.pids(), ids(pool.leases())
    assert roles.keys() >= WHOLE
    assert len(leases) == 1
    os.kill(roles[victim].pid, signal.SIGKILL)
    deadline = Deadline(LIMIT_S)
    if victim in ("wrapper", "kernel"):
        wait_for_death(client, cell, 2)
        assert "SIGKILL" in cell.error_text
        assert ("bitfusion run" if victim == "wrapper" else "kernel") in cell.error_text
    kernels.wait_for_the_end_of(old, deadline)
    wait_until(lambda: not leases & ids(pool.leases()), "the end of the lease", deadline)
    # the server's own restart brings a new kernel on the same connection file
    kernels.wait_for_the_restarted_one()
    server.wait_for_answer(client)
    again = client.run("print('again')", 20)
    assert again.status == "ok", again.error_text
    assert (again.count, again.stream()) == (1, "again\n")
    server.delete(kernel_id, client)
    pool.wait_until_free(2)
    kernels.wait_for_no_process(2)


def kill_while_waiting(server: Server, pool: Pool, holder: int, name: str, victim: str) -> None:
    """One round."""
    kernels = Kernels(server, pool, holder)
    held = ids(pool.leases())
    kernel_id = server.start_kernel(name)
    client = server.connect(kernel_id)
    cell = waiting_cell(client)
    roles, old, waiting = kernels.roles(), kernels.pids(), ids(pool.waiting())
    assert roles.keys() == WAITING
    assert len(waiting) == 1
    os.kill(roles[victim].pid, signal.SIGKILL)
    deadline = Deadline(LIMIT_S)
    if victim == "wrapper":
        # nothing was held or lost: the cell is told, and the kernel lives to try again
        client.finish(cell, 2)
        assert cell.status == "error"
        assert "SIGKILL" in cell.error_text
        assert "The `bitfusion` client failed" in cell.error_text
        old = {roles["wrapper"].pid}
    kernels.wait_for_the_end_of(old, deadline)
    wait_until(lambda: not waiting & ids(pool.waiting()), "the end of the request in the queue", deadline)
    assert ids(pool.leases()) == held
    if victim != "wrapper":
        kernels.wait_for_the_restarted_one()
        # deleting the kernel in the middle of its start is an error
        server.drop(client)
        client = server.connect(kernel_id)
    waiting_cell(client)
    server.delete(kernel_id, client)
    kernels.wait_for_no_process(2)
    assert pool.waiting() == []
    assert ids(pool.leases()) == held


@pytest.mark.rounds
@pytest.mark.parametrize("victim", sorted(WHOLE))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 20 * KILL_ROUNDS)
def test_killed_while_a_cell_runs(server: Server, pool: Pool, name: str, victim: str) -> None:
    for _ in range(KILL_ROUNDS):
        kill_while_a_cell_runs(server, pool, name, victim)


@pytest.mark.rounds
@pytest.mark.parametrize("victim", sorted(WAITING))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 20 * KILL_ROUNDS)
def test_killed_while_waiting(server: Server, pool: Pool, name: str, victim: str) -> None:
    with pool.held() as holder:
        for _ in range(KILL_ROUNDS):
            kill_while_waiting(server, pool, holder.pid, name, victim)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("waiting", [False, True], ids=["running", "waiting"])
def test_killed_server_takes_everything_with_it(server: Server, pool: Pool, name: str, waiting: bool) -> None:
    if waiting:
        with pool.held() as holder:
            waiting_cell(server.connect(server.start_kernel(name)))
            server.process.kill()
            Kernels(server, pool, holder.pid).wait_for_no_process(2)
            assert pool.waiting() == []
    else:
        running_cell(server.connect(server.start_kernel(name)))
        server.process.kill()
        Kernels(server, pool).wait_for_no_process(2)
        assert pool.leases() == []


@pytest.mark.parametrize("name", OURS)
def test_restart_and_interrupt_through_the_server(server: Server, pool: Pool, name: str) -> None:
    kernel_id = server.start_kernel(name)
    client = server.connect(kernel_id)
    cell = running_cell(client)
    server.ask("POST", f"/api/kernels/{kernel_id}/interrupt")
    client.finish(cell, 3)
    assert cell.error["ename"] == "KeyboardInterrupt"
    server.ask("POST", f"/api/kernels/{kernel_id}/restart")
    server.wait_for_answer(client)
    assert client.run("'cell' in globals()").count == 1
    wait_until(lambda: server.ask("GET", f"/api/kernels/{kernel_id}")["execution_state"] == "idle", "idle", 3)
