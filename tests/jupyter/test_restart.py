"""A restart keeps lease, size and place in the queue, in each way in which Jupyter restarts a kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_kernel.processes.process_watch import stat
from tests.jupyter.cells import running_cell, wait_for_notice, waiting_cell
from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import FIRST_CELL, OURS, PLAIN, Launch
from tests.jupyter.embedded_pool import CLIENT, Pool
from tests.jupyter.jupyter_server import SURELY_KEPT_S, Kernels, Server
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def gracefully(kernel: LiveKernel) -> None:
    kernel.manager.restart_kernel()


def now(kernel: LiveKernel) -> None:
    kernel.manager.restart_kernel(now=True)


def with_new_ports(kernel: LiveKernel) -> None:
    kernel.manager.restart_kernel(newports=True)


def after_its_death(kernel: LiveKernel) -> None:
    os.kill(kernel.pid, signal.SIGKILL)
    kernel.wait_for_end(2)
    kernel.manager.restart_kernel(now=True)


WAYS: list[Callable[[LiveKernel], None]] = [gracefully, now, with_new_ports, after_its_death]


def reconnect(kernel: LiveKernel) -> None:
    """A client of its own for each life: the ports may be others."""
    for client in kernel.clients:
        client.close()
    kernel.clients.clear()
    kernel.connect()


def restart(kernel: LiveKernel, way: Callable[[LiveKernel], None]) -> bool:
    """Restart it; whether so soon after a kill that it surely goes on with what there was."""
    began = time.monotonic()
    way(kernel)
    reconnect(kernel)
    if way in (gracefully, with_new_ports) or time.monotonic() - began < SURELY_KEPT_S:
        return True
    time.sleep(scaled(2))  # it has joined, or what there was has been given back
    return False


def lease_of(pool: Pool) -> str:
    (lease,) = pool.leases()
    return str(lease["id"])


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("way", WAYS)
def test_a_restart_keeps_lease_and_size(
    launch: Launch, pool: Pool, name: str, way: Callable[[LiveKernel], None]
) -> None:
    kernel = launch(name)
    kernel.run("%bitfusion request -p 0.5")
    kernel.restart()
    kernel.run("x = 1")
    before = lease_of(pool)
    assert pool.leases()[0]["request"]["partial"] == 0.5
    for _ in range(2):
        if not restart(kernel, way) and [each["id"] for each in pool.leases()] != [before]:
            return  # the machine stood still: it came too late
        assert lease_of(pool) == before
        cell = kernel.run("print('x' in globals())")
        assert (cell.count, cell.stream()) == (1, "False\n")
        assert lease_of(pool) == before


def begun(pid: int) -> int:
    """When a process began, in ticks."""
    fields = stat(pid)
    assert fields is not None
    return int(fields[20])


def test_the_kernel_of_a_restart_is_there_before_its_proxy(launch: Launch) -> None:
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    proxies = [kernel.pid]
    for _ in range(3):
        kernel.restart()
        proxies.append(kernel.pid)
        assert begun(int(kernel.run("import os; os.getpid()").result or 0)) <= begun(kernel.pid)
    assert len(set(proxies)) == 4


@pytest.mark.long
def test_twenty_restarts_keep_the_lease_and_another_who_waits_for_it_never_gets_it(
    launch: Launch, pool: Pool, tmp_path: Path
) -> None:
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    before, got = lease_of(pool), tmp_path / "got"
    with Waiter(pool, got):
        wait_until(pool.waiting, "the other in the queue")
        for _ in range(20):
            kernel.restart()
            assert kernel.run("6 * 7").result == "42"
            assert lease_of(pool) == before
        assert not got.exists()
        kernel.stop()
        wait_until(got.exists, "the other's turn", 5)


class Waiter:
    """Another client that waits for the GPU, and leaves a file once it has it."""

    def __init__(self, pool: Pool, mark: Path) -> None:
        self._process = subprocess.Popen(
            [CLIENT, "run", "-n", "1", "--", "touch", str(mark)],
            env=os.environ | pool.environment | {"BITFUSION_LABEL": "other.ipynb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(scaled(10))


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_while_waiting_keeps_the_place(
    launch: Launch, pool: Pool, way: Callable[[LiveKernel], None], tmp_path: Path
) -> None:
    kernel, got = launch("bitfusion"), tmp_path / "got"
    with pool.held() as holder:
        waiting_cell(kernel.client)
        (before,) = pool.waiting()
        with Waiter(pool, got):
            wait_until(lambda: len(pool.waiting()) == 2, "the other behind it")
            if not restart(kernel, way) and pool.waiting()[0]["id"] != before["id"]:
                return  # the machine stood still: it came too late
            assert pool.waiting()[0]["id"] == before["id"]
            cell = kernel.client.send("print('mine')")
            wait_for_notice(kernel.client, cell, "1 of 2")
            pool.end(holder)
            kernel.client.finish(cell, 10)
            assert cell.stream() == "mine\n"
            assert lease_of(pool) == before["id"]
            assert not got.exists()


def test_a_restart_waits_for_no_process_that_stays(launch: Launch) -> None:
    """The first one above all: the supervisor is a child of the proxy that ends."""
    seconds = {}
    for name in (PLAIN, FIRST_CELL, FIRST_CELL, FIRST_CELL):  # again where the machine has stood still
        kernel = launch(name)
        kernel.run("x = 1")
        began = time.monotonic()
        kernel.manager.restart_kernel()
        seconds[name] = time.monotonic() - began
        kernel.stop()
        if seconds.get(FIRST_CELL, float("inf")) < seconds[PLAIN] + scaled(0.6):
            return
    pytest.fail(str(seconds))


def test_a_size_that_was_chosen_since_is_asked_for_after_the_restart(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    before = lease_of(pool)
    kernel.run("%bitfusion request -p 0.5")
    kernel.restart()
    assert kernel.run("6 * 7").result == "42"
    assert lease_of(pool) != before
    assert pool.leases()[0]["request"]["partial"] == 0.5


def test_a_shutdown_gives_the_lease_back_at_once(launch: Launch, pool: Pool) -> None:
    for _ in range(3):  # again where the machine has stood still
        kernel = launch("bitfusion")
        kernel.run("x = 1")
        kernel.restart()
        began = time.monotonic()
        kernel.stop()
        pool.wait_until_free(10)
        if (seconds := time.monotonic() - began) < scaled(2):
            return
    pytest.fail(f"{seconds:.1f} s")


def test_a_kernel_that_nobody_restarts_gives_the_lease_back(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    running_cell(kernel.client)
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_no_process(pool, 6)
    assert pool.leases() == []


# -- under a server, whose restarter watches -----------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["button", "SIGKILL of the kernel", pytest.param("SIGKILL of the proxy", marks=pytest.mark.long)]
)
def test_the_servers_restarts_keep_the_lease(server: Server, pool: Pool, how: str) -> None:
    kernels = Kernels(server, pool)
    kernel_id = server.start_kernel("bitfusion")
    client = server.connect(kernel_id)
    in_time = False
    while not in_time:
        running_cell(client)
        before, roles = lease_of(pool), kernels.roles()
        if how == "button":
            server.ask("POST", f"/api/kernels/{kernel_id}/restart")
            in_time = True
        else:
            kernels.kill(roles[how.rpartition(" ")[2]])
            in_time = kernels.wait_for_the_restarted_one(roles["proxy"])
        server.wait_for_answer(client)
    server.wait_for_answer(client)
    again = client.run("print('again')", 20)
    assert (again.count, again.stream()) == (1, "again\n")
    assert lease_of(pool) == before
    server.delete(kernel_id, client)
    pool.wait_until_free(2)
