"""SIGKILL of any one process of the chain leaves no process and no lease, and the cell says what died.

The environment variable KILL_ROUNDS says how many rounds each case has (2).
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.jupyter.conftest import KILL_ROUNDS, OURS, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import Cell, LiveKernel, poll
from tests.jupyter.processes import Process, processes_with

LIMIT = 2.0


def chain(kernel: LiveKernel, pool: Pool, holder: int | None = None) -> dict[str, Process]:
    """The processes of a kernel by role."""
    roles: dict[str, Process] = {}
    for process in processes_with(pool.mark):
        if process.session == holder:
            continue
        role = process.role
        if role == "proxy" and process.pid != kernel.pid:
            role = "supervisor"
        roles.setdefault(role, process)
    return roles


def waiting_cell(kernel: LiveKernel) -> Cell:
    cell = kernel.client.send("print('never')")
    kernel.client.pump(lambda: cell.of("display_data"), 10, "the notice")
    return cell


def running_cell(kernel: LiveKernel) -> Cell:
    cell = kernel.client.send(
        "import subprocess, time\nchild = subprocess.Popen(['sleep', '300'])\n"
        "print('runs', flush=True)\ntime.sleep(300)"
    )
    kernel.client.pump(cell.stream, 15, "the running cell")
    return cell


def gone(pool: Pool, holder: int | None, since: float) -> float:
    """Seconds until no process of the kernel was left; fails beyond the limit."""

    def alive() -> list[Process]:
        return [process for process in processes_with(pool.mark) if process.session != holder]

    poll(lambda: not alive(), max(0.0, since + LIMIT - time.monotonic()), 0.02)
    left = alive()
    assert not left, f"alive after {LIMIT} s: " + ", ".join(f"{p.role} {p.pid}" for p in left)
    return time.monotonic() - since


@pytest.mark.parametrize("victim", ["proxy", "supervisor", "wrapper"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_waiting(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    with pool.held() as holder:
        for _ in range(KILL_ROUNDS):
            kernel = launch(name)
            cell = waiting_cell(kernel)
            os.kill(chain(kernel, pool, holder.pid)[victim].pid, signal.SIGKILL)
            begin = time.monotonic()
            if victim == "wrapper":
                # nothing was held or lost: the cell is told, and the kernel lives to try again
                kernel.client.finish(cell, timeout=LIMIT)
                assert "SIGKILL" in cell.error_text
                assert kernel.manager.is_alive()
                waiting_cell(kernel)
                kernel.stop()
                begin = time.monotonic()
            gone(pool, holder.pid, begin)
            assert pool.waiting() == []
            assert len(pool.leases()) == 1, "the holder's"
            kernel.stop()


@pytest.mark.parametrize("victim", ["proxy", "supervisor", "wrapper", "launcher", "kernel"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_a_cell_runs(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    for _ in range(KILL_ROUNDS):
        kernel = launch(name)
        cell = running_cell(kernel)
        victims = chain(kernel, pool)
        assert {"proxy", "supervisor", "wrapper", "launcher", "kernel"} <= victims.keys()
        os.kill(victims[victim].pid, signal.SIGKILL)
        begin = time.monotonic()
        if victim in ("wrapper", "kernel"):
            kernel.client.finish(cell, timeout=LIMIT)
            assert cell.status == "error"
            assert "SIGKILL" in cell.error_text
            assert ("bitfusion run" if victim == "wrapper" else "kernel") in cell.error_text
        gone(pool, None, begin)
        assert pool.leases() == []
        kernel.stop()


@pytest.mark.parametrize("name", OURS)
def test_kernel_that_leaves_by_itself_says_its_exit_code(launch: Launch, pool: Pool, name: str) -> None:
    kernel = launch(name)
    cell = kernel.run("import os; os._exit(3)")
    assert "exit code 3" in cell.error_text
    kernel.wait_for_end(LIMIT)
    pool.wait_until_free(LIMIT)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("victim", ["kernel", "wrapper", "proxy"])
def test_next_kernel_gets_the_gpu_at_once(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    first, second = launch(name), launch("bitfusion")
    running_cell(first)
    victims = chain(first, pool)
    cell = second.client.send("print('mine now')")
    second.client.pump(lambda: cell.of("display_data"), 10, "the notice")
    os.kill(victims[victim].pid, signal.SIGKILL)
    second.client.finish(cell, timeout=8)
    assert cell.stream() == "mine now\n"
