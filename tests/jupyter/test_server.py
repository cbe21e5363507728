"""Under a real Jupyter server, whose restarter watches: every death is survived, nothing stays behind.

The environment variable KILL_ROUNDS says how many rounds each kill has (1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.cells import releasing_cell, running_cell, wait_for_death, waiting_cell
from tests.jupyter.chain import WAITING, WHOLE
from tests.jupyter.client import Client
from tests.jupyter.conftest import KILL_ROUNDS, OURS
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Kernels, Server
from tests.support.waiting import Deadline, wait_until

RESTARTED = ("proxy", "kernel")
"""What a restart replaces; the lease stays."""

LIMIT_S = 5.0  # the restarter looks every 3 s


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
    roles = kernels.roles()
    kernels.kill(roles[victim])
    kernels.wait_for_the_end_of({roles["proxy"].pid, roles["kernel"].pid}, LIMIT_S)
    kernels.wait_for_the_restarted_one(roles["proxy"])
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
    kernels.kill(roles[victim])
    deadline = Deadline(LIMIT_S)
    if victim in ("wrapper", "kernel"):
        wait_for_death(client, cell, 2)
        assert "SIGKILL" in cell.error_text
        assert ("bitfusion run" if victim == "wrapper" else "kernel") in cell.error_text
    kept = victim in RESTARTED
    kernels.wait_for_the_end_of({roles[name].pid for name in RESTARTED} if kept else old, deadline)
    if not kept:
        wait_until(lambda: not leases & ids(pool.leases()), "the end of the lease", deadline)
    # the server's own restart brings a new kernel on the same connection file
    in_time = kernels.wait_for_the_restarted_one(roles["proxy"])
    server.wait_for_answer(client)
    again = client.run("print('again')", 20)
    assert again.status == "ok", again.error_text
    assert (again.count, again.stream()) == (1, "again\n")
    assert (ids(pool.leases()) == leases) is kept or not in_time
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
    kernels.kill(roles[victim])
    deadline = Deadline(LIMIT_S)
    if victim == "wrapper":
        # nothing was held or lost: the cell is told, and the kernel lives to try again
        client.finish(cell, 2)
        assert cell.status == "error"
        assert "SIGKILL" in cell.error_text
        assert "The `bitfusion` client failed" in cell.error_text
        old = {roles["wrapper"].pid}
    kept = victim == "proxy"
    kernels.wait_for_the_end_of({roles["proxy"].pid} if kept else old, deadline)
    if not kept:
        wait_until(lambda: not waiting & ids(pool.waiting()), "the end of the request in the queue", deadline)
    assert ids(pool.leases()) == held
    in_time = True
    if victim != "wrapper":
        in_time = kernels.wait_for_the_restarted_one(roles["proxy"])
        # deleting the kernel in the middle of its start is an error
        server.drop(client)
        client = server.connect(kernel_id)
    waiting_cell(client)
    assert (ids(pool.waiting()) == waiting) is kept or not in_time
    server.delete(kernel_id, client)
    kernels.wait_for_no_process(2)
    assert pool.waiting() == []
    assert ids(pool.leases()) == held


def some_long(victims: set[str]) -> list[Any]:
    """`test_kill_matrix` has all of them, without a server."""
    shown = ("kernel", "proxy")
    return [pytest.param(each, marks=[pytest.mark.long] * (each not in shown)) for each in sorted(victims)]


@pytest.mark.rounds
@pytest.mark.parametrize("victim", some_long(WHOLE))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 20 * KILL_ROUNDS)
def test_killed_while_a_cell_runs(server: Server, pool: Pool, name: str, victim: str) -> None:
    for _ in range(KILL_ROUNDS):
        kill_while_a_cell_runs(server, pool, name, victim)


@pytest.mark.rounds
@pytest.mark.parametrize("victim", some_long(WAITING))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 20 * KILL_ROUNDS)
def test_killed_while_waiting(server: Server, pool: Pool, name: str, victim: str) -> None:
    with pool.held() as holder:
        for _ in range(KILL_ROUNDS):
            kill_while_waiting(server, pool, holder.pid, name, victim)


def park(client: Client) -> None:
    """A restart that has begun, of which the server knows only when its restarter looks."""
    client.run("x = 1")
    client.request("shutdown_request", {"restart": True}, "control")


SERVER_GONE: dict[str, tuple[Callable[[Client], object], float]] = {
    "running": (running_cell, 2),
    "waiting": (waiting_cell, 2),
    "idle": (lambda client: client.run("x = 1"), 2),
    "parked": (park, 5),  # kept for a while, though not for the 30 s of a restart
    "releasing": (lambda client: (client.run("x = 1"), releasing_cell(client)), 2),
}


@pytest.mark.rounds
@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("state", SERVER_GONE)
@pytest.mark.timeout(60 + 20 * KILL_ROUNDS)
def test_killed_server_takes_everything_with_it(
    kernelspecs: Path, pool: Pool, tmp_path: Path, name: str, state: str
) -> None:
    bring, limit_s = SERVER_GONE[state]
    for number in range(KILL_ROUNDS):
        folder = tmp_path / f"server-{number}"
        folder.mkdir()
        server = Server(folder)
        try:
            with pool.held() if state == "waiting" else contextlib.nullcontext() as holder:
                kernels = Kernels(server, pool, None if holder is None else holder.pid)
                bring(server.connect(server.start_kernel(name)))
                if state == "parked":
                    wait_until(lambda of=kernels: "proxy" not in of.roles(), "no proxy")  # type: ignore[misc]
                server.process.kill()
                kernels.wait_for_no_process(limit_s)
                assert pool.waiting() == []
                assert len(pool.leases()) == (holder is not None)
        finally:
            server.stop()


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
