"""Waiting for GPUs in `bitfusion run`: order, waiting line, timeout, killed holders and waiters."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from bitfusion_client.command.client_lines import Waiting
from bitfusion_client.command.client_output import parse_line
from bitfusion_pool.ledger.entries import WAITING
from tests.pool.pool_client import COMMAND, PoolClient, finish
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def test_the_waiting_line_tells_holders_from_those_who_wait_before(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    first = client.start("run", "-n", "1", "--", "true", env={"JPY_SESSION_NAME": "/home/me/a;b.ipynb"})
    client.until_waiting(1)
    second = client.start("run", "-n", "1", "-p", "0.5", "--", "/usr/bin/env", "-i", "x", "y")
    client.until_waiting(2)
    assert second.stderr is not None
    lines = [parse_line(second.stderr.readline()) for _ in range(3)]
    waiting = lines[-1]
    assert isinstance(waiting, Waiting)
    assert (waiting.queue_position, waiting.queue_length) == (2, 2)
    (holder,), (earlier,) = waiting.held_by, waiting.before
    assert ": boss.ipynb (2 GPUs, since " in holder
    assert ": a,b.ipynb (1 GPU, since " in earlier
    with client.ledger() as ledger:
        assert [entry.holder.label for entry in ledger.entries()] == ["boss.ipynb", "a,b.ipynb", "env -i x"]
    os.killpg(everything_taken.pid, signal.SIGKILL)
    assert first.wait(scaled(20)) == 0
    finish(second)
    first.communicate()


def test_a_command_that_waits_for_what_its_own_notebook_holds_says_so(client: PoolClient) -> None:
    inner = ("run", "-n", "2", "--timeout", f"{scaled(300):.0f}ms", "--", "true")
    notebook = client.do(
        "run", "-n", "1", "--", COMMAND, *inner, env={"JPY_SESSION_NAME": "/home/me/train.ipynb"}
    )
    (line,) = (line for line in notebook.stderr.splitlines() if "Waiting for GPUs" in line)
    assert "; held by this notebook: " in line
    assert ": train.ipynb (1 GPU, since " in line
    assert line.endswith(
        "; why: this notebook holds 1 GPU itself and keeps it while this command waits: ask for less, "
        "or stop this command and run it elsewhere"
    )


def test_a_wait_ends_after_its_timeout(client: PoolClient, everything_taken: subprocess.Popen[str]) -> None:
    done = client.do("run", "-n", "1", "--timeout", "300ms", "--", "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: timed out after 300ms waiting for 1 GPUs"
    assert client.entries(WAITING) == []


def test_a_killed_waiter_leaves_no_entry(client: PoolClient, everything_taken: subprocess.Popen[str]) -> None:
    process = client.start("run", "-n", "1", "--", "true")
    client.until_waiting(1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert client.admin("reap").stdout == (
        "released 1 leases and queue positions, removed 0 leftover lock files\n"
    )
    assert client.entries(WAITING) == []


def test_commands_of_several_sizes_are_served_in_order(client: PoolClient, tmp_path: Path) -> None:
    order = tmp_path / "order"
    boss = client.start("run", "-n", "2", "--", "sleep", "600")
    client.until_held()
    waiting = []
    for number in range(12):
        gpus = str(1 + number % 2)
        program = f"echo {number} >> {order}"
        waiting.append(client.start("run", "-n", gpus, "-p", "0.9", "--", "sh", "-c", program))
        client.until_waiting(number + 1)
    os.killpg(boss.pid, signal.SIGKILL)
    boss.communicate()
    for process in waiting:
        finish(process)
        assert process.returncode == 0
    # no two of them fit side by side
    assert [int(line) for line in order.read_text().split()] == list(range(12))


def test_the_next_in_the_queue_gets_the_gpus_of_a_killed_holder(client: PoolClient) -> None:
    holder = client.start("run", "-n", "2", "--", "sleep", "600")
    client.until_held()
    waiter = client.start("run", "-n", "1", "--", "echo", "ran")
    client.until_waiting(1)
    os.killpg(holder.pid, signal.SIGKILL)
    out, _ = finish(waiter)
    holder.communicate()
    assert (waiter.returncode, out) == (0, "ran\n")


def test_waiters_that_die_in_the_queue_do_not_stop_it(client: PoolClient) -> None:
    processes: list[subprocess.Popen[str]] = [client.start("run", "-n", "2", "--", "sleep", "600")]
    client.until_held()
    for number in range(8):
        processes.append(client.start("run", "-n", "2", "--", "true"))
        client.until_waiting(number + 1)
    for process in [*processes[1:8:2], processes[2], processes[0]]:
        os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        finish(process)
    assert [process.returncode for process in processes] == [-9, -9, -9, -9, 0, -9, 0, -9, 0]
    wait_until(lambda: client.admin("reap") and not client.entries("held") and not client.entries("waiting"))
