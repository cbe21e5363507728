"""SIGKILL of any one process of the chain leaves no process and no lease, and the cell says what died.

The environment variable KILL_ROUNDS says how many rounds each case has (1).
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from bitfusion_client.kernel_state import watch
from tests.jupyter.cells import (
    notices,
    releasing_cell,
    resizing_cell,
    running_cell,
    wait_for_death,
    waiting_cell,
)
from tests.jupyter.chain import WHOLE, chain, wait_for_no_process, wrappers
from tests.jupyter.conftest import FIRST_CELL, KILL_ROUNDS, OURS, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled
from tests.support.waiting import Deadline, wait_until

LIMIT_S = 2.0
LIMITS_S = {"kernel": 5.5, "proxy": 5.5}
"""Of what may be restarted: it is kept for 4 s, as the process that would do that lives."""
KILLED_AS = {
    "kernel": "the kernel process",
    "launcher": "the program under `bitfusion run`",
    "wrapper": "`bitfusion run`",
}


def wait_for_state(kernel: LiveKernel, name: str) -> None:
    def state() -> str:
        told = watch.look(kernel.manager.connection_file, os.environ, seconds=scaled(5))
        return str(told["state"])

    wait_until(lambda: state() == name, state, 10)


@pytest.mark.rounds
@pytest.mark.parametrize("victim", ["proxy", "supervisor"])
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_nothing_is_asked(launch: Launch, pool: Pool, victim: str) -> None:
    """Nothing is lost, nobody waits: to Jupyter it is a dead kernel, as any other."""
    for _ in range(KILL_ROUNDS):
        kernel = launch(FIRST_CELL)
        kernel.connect()
        wait_for_state(kernel, "none")
        victims = chain(pool, os.getpid())
        assert victims.keys() == {"proxy", "supervisor"}
        os.kill(victims[victim].pid, signal.SIGKILL)
        deadline = Deadline(LIMIT_S)
        kernel.wait_for_end(deadline)
        wait_for_no_process(pool, deadline)
        kernel.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", ["proxy", "supervisor", "wrapper"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_waiting(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    with pool.held() as holder:
        for _ in range(KILL_ROUNDS):
            kernel = launch(name)
            cell = waiting_cell(kernel.client)
            os.kill(chain(pool, os.getpid(), holder.pid)[victim].pid, signal.SIGKILL)
            deadline = Deadline(LIMITS_S.get(victim, LIMIT_S))
            if victim == "wrapper":
                # nothing was held or lost: the cell is told, and the kernel lives to try again
                kernel.client.finish(cell, deadline)
                assert "SIGKILL" in cell.error_text
                assert kernel.manager.is_alive()
                waiting_cell(kernel.client)
                kernel.stop()
                deadline = Deadline(LIMIT_S)
            wait_for_no_process(pool, deadline, holder=holder.pid)
            assert pool.waiting() == []
            assert len(pool.leases()) == 1, "the holder's"
            kernel.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", sorted(WHOLE))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
@pytest.mark.usefixtures("kernelspecs")  # whose making starts a kernel, too
def test_killed_while_its_kernel_starts(
    launch: Launch, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, victim: str
) -> None:
    """The GPU has come, and the kernel does not answer yet."""
    hold, site = tmp_path / "hold", tmp_path / "site"
    site.mkdir()  # in which nothing changes while an interpreter reads it
    (site / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        # before its packages; proxy, wrapper and launcher run without this file (-S)
        f"if 'ipykernel_launcher' in sys.orig_argv and os.path.exists({str(hold)!r}): time.sleep(300)"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for _ in range(KILL_ROUNDS):
        hold.touch()
        kernel = launch(name)
        cell = kernel.client.send("6 * 7")
        wait_for_state(kernel, "starting")
        wait_until(lambda: chain(pool, os.getpid()).keys() >= WHOLE, "the whole chain")
        victims = chain(pool, os.getpid())
        os.kill(victims[victim].pid, signal.SIGKILL)
        deadline = Deadline(LIMITS_S["proxy"] if victim == "proxy" else LIMIT_S)
        if victim in ("kernel", "wrapper", "launcher"):
            # nothing was lost: the cell is told, and the notebook lives to try again
            kernel.client.finish(cell, deadline)
            assert "SIGKILL" in cell.error_text
            pool.wait_until_free(deadline)
            hold.unlink()
            assert kernel.run("6 * 7").result == "42"
            kernel.stop()
            deadline = Deadline(LIMIT_S)
        elif victim == "supervisor":
            wait_for_death(kernel.client, cell, deadline)
            assert "the process that kept `bitfusion run` was killed" in cell.error_text
        wait_for_no_process(pool, deadline)
        assert pool.leases() == []
        kernel.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", sorted(WHOLE))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_idle(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    """No cell is there that could be told: to Jupyter it is a dead kernel, as any other that died idle."""
    for _ in range(KILL_ROUNDS):
        kernel = launch(name)
        cell = kernel.run("x = 1")
        wait_for_state(kernel, "idle")
        os.kill(chain(pool, os.getpid())[victim].pid, signal.SIGKILL)
        deadline = Deadline(LIMITS_S.get(victim, LIMIT_S))
        kernel.wait_for_end(LIMIT_S)
        kernel.client.settle(0.1)
        assert not cell.of("error"), "it was over"
        wait_for_no_process(pool, deadline)
        assert pool.leases() == []
        kernel.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", sorted(WHOLE))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_a_cell_runs(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    for _ in range(KILL_ROUNDS):
        kernel = launch(name)
        cell = running_cell(kernel.client)
        victims = chain(pool, os.getpid())
        assert victims.keys() >= WHOLE
        os.kill(victims[victim].pid, signal.SIGKILL)
        deadline = Deadline(LIMITS_S.get(victim, LIMIT_S))
        if victim in KILLED_AS:
            wait_for_death(kernel.client, cell, deadline)
            assert f"{KILLED_AS[victim]} was killed by SIGKILL" in cell.error_text
        wait_for_no_process(pool, deadline)
        assert pool.leases() == []
        kernel.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", ["supervisor", "wrapper", "launcher"])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_between_two_kernels(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    """While the lease is kept for a restart: then it is lost, and the next kernel takes a GPU anew."""
    kernel = launch(name)
    for _ in range(KILL_ROUNDS):
        kernel.run("x = 1")
        victims = chain(pool, os.getpid())
        kernel.manager.shutdown_kernel(restart=True)
        assert len(pool.leases()) == 1
        os.kill(victims[victim].pid, signal.SIGKILL)
        wait_for_no_process(pool, LIMIT_S)
        assert pool.leases() == []
        kernel.restart()
        assert kernel.run("print('x' in globals())").stream() == "False\n"


@pytest.mark.rounds
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_next_kernel_killed_before_its_proxy_comes(launch: Launch, pool: Pool, name: str) -> None:
    """It was started ahead, on the lease that is kept: another one takes its place there."""
    kernel = launch(name)
    for _ in range(KILL_ROUNDS):
        kernel.run("x = 1")
        (before,) = pool.leases()
        kernel.manager.shutdown_kernel(restart=True)
        wait_until(lambda: "kernel" in chain(pool, os.getpid()), "the next kernel")
        os.kill(chain(pool, os.getpid())["kernel"].pid, signal.SIGKILL)
        kernel.restart()
        assert kernel.run("print('x' in globals())").stream() == "False\n"
        assert [each["id"] for each in pool.leases()] == [before["id"]]


@pytest.mark.rounds
@pytest.mark.parametrize("victim", sorted(WHOLE))
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_it_gives_back(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    for _ in range(KILL_ROUNDS):
        kernel = launch(name)
        kernel.run("x = 1")
        victims = chain(pool, os.getpid())
        os.kill(victims["kernel"].pid, signal.SIGSTOP)  # it does not say at once what comms there are
        cell = releasing_cell(kernel.client)
        with contextlib.suppress(ProcessLookupError):  # the machine has stood still until it had ended
            os.kill(victims[victim].pid, signal.SIGKILL)
        deadline = Deadline(LIMITS_S.get(victim, LIMIT_S))
        if victim in ("kernel", "wrapper", "launcher"):
            kernel.client.finish(cell, deadline)
            assert "1 GPU given back." in cell.stream()
            pool.wait_until_free(deadline)
            assert kernel.run("print('x' in globals())").stream() == "False\n"
            kernel.stop()
            deadline = Deadline(LIMIT_S)
        wait_for_no_process(pool, deadline)
        assert pool.leases() == []
        kernel.stop()


@pytest.mark.rounds
@pytest.mark.parametrize("victim", [*sorted(WHOLE), "beside"])
@pytest.mark.timeout(30 + 12 * KILL_ROUNDS)
def test_killed_while_another_size_is_asked_for(launch: Launch, pool: Pool, victim: str) -> None:
    pool.write(gpus=2)
    with pool.held() as holder:
        for _ in range(KILL_ROUNDS):
            kernel = launch(FIRST_CELL)
            kernel.run("x = 1")
            victims = chain(pool, os.getpid(), holder.pid)
            cell = resizing_cell(kernel.client, "-n 2")
            beside = wrappers(pool, holder.pid) - {victims["wrapper"].pid}
            os.kill(beside.pop() if victim == "beside" else victims[victim].pid, signal.SIGKILL)
            deadline = Deadline(LIMITS_S.get(victim, LIMIT_S))
            if victim == "beside":
                kernel.client.finish(cell, deadline)
                assert "SIGKILL" in cell.error_text
                assert kernel.run("print('x' in globals())").stream() == "True\n"
                kernel.stop()
                deadline = Deadline(LIMIT_S)
            wait_for_no_process(pool, deadline, holder=holder.pid)
            assert pool.waiting() == []
            assert len(pool.leases()) == 1, "the holder's"
            kernel.stop()


@pytest.mark.parametrize("name", OURS)
def test_kernel_that_leaves_by_itself_says_its_exit_code(launch: Launch, pool: Pool, name: str) -> None:
    kernel = launch(name)
    cell = kernel.client.send("import os; os._exit(3)")
    wait_for_death(kernel.client, cell, 10)
    assert "exit code 3" in cell.error_text
    kernel.wait_for_end(LIMIT_S)
    pool.wait_until_free(LIMITS_S["kernel"])


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("victim", ["kernel", "wrapper", "proxy"])
def test_next_kernel_gets_the_gpu_of_a_killed_one(launch: Launch, pool: Pool, name: str, victim: str) -> None:
    first = launch(name)
    running_cell(first.client)
    victims = chain(pool, os.getpid())
    second = launch(FIRST_CELL)
    cell = second.client.send("print('mine now')")
    second.client.pump(lambda: notices(cell), 10, "the notice")
    os.kill(victims[victim].pid, signal.SIGKILL)
    second.client.finish(cell, 8)
    assert cell.stream() == "mine now\n"
