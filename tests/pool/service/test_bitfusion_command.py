"""The `bitfusion` command with a service that runs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from bitfusion_pool.ledger.entries import WAITING
from tests.pool.pool_client import PoolClient, finish, uniform, until_told_to_wait
from tests.pool.service.running_service import RunningService
from tests.support.waiting import wait_until

NOT_FREED = "[WARN] TIME The GPUs stay allocated until the processes the command left behind have ended"


@pytest.fixture
def user(client: PoolClient, service: RunningService) -> PoolClient:
    """A user of the service."""
    client.environ["BITFUSION_POOL"] = service.socket
    return client


def until_waiting(service: RunningService, count: int) -> None:
    wait_until(lambda: sum(one.state == WAITING for one in service.entries()) == count)


def started(process: subprocess.Popen[str]) -> int:
    """The number that the program of the command writes first."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_run_says_and_does_what_it_does_in_the_own_pool(user: PoolClient, service: RunningService) -> None:
    words = ("run", "-n", "2", "-p", "0.5", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 4")
    served = user.do(*words)
    own = user.do(*words, env={"BITFUSION_POOL": "own"})
    assert (served.returncode, served.stdout) == (own.returncode, own.stdout) == (4, "\n")
    assert uniform(served.stderr) == uniform(own.stderr)
    assert service.entries() == []
    assert os.listdir(service.folder / "locks") == []


def test_a_lease_ends_with_the_program_not_with_its_wrapper(
    user: PoolClient, service: RunningService
) -> None:
    process = user.start("run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 600")
    program = started(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    waiter = user.start("run", "-n", "1", "--", "echo", "mine")
    until_waiting(service, 1)
    os.kill(program, signal.SIGKILL)
    assert finish(waiter)[0] == "mine\n"
    process.communicate()
    assert service.entries() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_keeps_what_is_held_and_serves_who_waited(
    user: PoolClient, service: RunningService, tmp_path: Path, number: int
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = user.start("run", "-n", "2", "--", "sh", "-c", f"echo $$; cat {gate}")
    started(holder)
    waiters = [user.start("run", "-n", gpus, "--", "echo", gpus) for gpus in ("1", "2")]
    for waiter in waiters:
        until_told_to_wait(waiter)
    (held,) = (entry.entry_id for entry in service.entries() if entry.state != WAITING)
    service.end(number)
    service.start()
    until_waiting(service, 2)
    assert held in [entry.entry_id for entry in service.entries()]
    gate.write_text("end")
    out, err = finish(holder)
    assert (holder.returncode, out) == (0, "end")
    assert "Released GPUs on 1 servers" in err
    for waiter, gpus in zip(waiters, ("1", "2"), strict=True):
        out, err = finish(waiter)
        assert (waiter.returncode, out) == (0, f"{gpus}\n")
        assert err.count("this request waits for it") == 1
        assert err.count("is back, the request goes back to its position") == 1
    assert service.entries() == []


def test_reservations_are_used_and_ended(user: PoolClient, service: RunningService) -> None:
    assert user.do("request_gpus", "-n", "1").returncode == 0
    (entry,) = service.entries()
    for _ in range(2):
        assert user.do("client", "--", "printenv", "BITFUSION_POOL_LEASE").stdout == f"{entry.entry_id}\n"
    assert "Released GPUs on 1 servers" in user.do("release_gpus").stderr
    assert service.entries() == []
    late = user.do("release_gpus")
    assert "no GPUs are requested" in late.stderr


def test_a_run_that_still_lives_keeps_its_gpus_and_release_gpus_says_so(
    user: PoolClient, service: RunningService
) -> None:
    process = user.start("run", "-n", "1", "--", "sh", "-c", "echo $$; exec sleep 600")
    program = started(process)
    assert process.stderr is not None
    path = next(line.split("'")[1] for line in process.stderr if "saved to" in line)
    assert uniform(user.do("release_gpus", "-f", path).stderr).splitlines()[-1] == NOT_FREED
    assert len(service.entries()) == 1
    os.kill(program, signal.SIGKILL)
    finish(process)
    service.until_entries(0)


def test_an_interrupted_wait_leaves_the_queue(user: PoolClient, service: RunningService) -> None:
    holder = user.start("run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 600")
    program = started(holder)
    waiter = user.start("run", "-n", "1", "--", "true")
    until_waiting(service, 1)
    os.kill(waiter.pid, signal.SIGINT)
    finish(waiter)
    assert waiter.returncode == 130
    until_waiting(service, 0)
    os.kill(program, signal.SIGKILL)
    finish(holder)


def test_a_limit_is_told_with_what_to_do(client: PoolClient, base: Path) -> None:
    service = RunningService(base, "--gpus-per-user", "1").start()
    client.environ["BITFUSION_POOL"] = service.socket
    try:
        done = client.do("run", "-n", "2", "--", "true")
    finally:
        service.end()
    assert done.stderr.splitlines()[-1] == (
        "Error: limit of the pool: one user of this pool may have 1 GPUs, you have or wait for 0, and this "
        "request is for 2. What to do: end something of yours first; `bitfusion smi` shows who holds what"
    )
