"""Waiting for GPUs in `bitfusion run`: order, waiting line, timeout, killed holders and waiters."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from bitfusion_client.command.client_lines import Waiting
from bitfusion_client.command.client_output import parse_line
from bitfusion_pool.client.commands.acquisition import WaitingLines
from bitfusion_pool.client.pools.first_contact import Contact
from bitfusion_pool.inventory.emulation import Emulation
from bitfusion_pool.ledger.entries import HELD, WAITING
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


WHOLE_POOL = ("-n", "2")  # of two GPUs
NOTEBOOK = {"JPY_SESSION_NAME": "/home/me/train.ipynb"}


@pytest.mark.parametrize("words", [("run", *WHOLE_POOL, "--", "true"), ("request_gpus", *WHOLE_POOL)])
@pytest.mark.parametrize("between", [(), (COMMAND, "run", "-n", "1", "-p", "0.1", "--")])
def test_a_command_does_not_wait_for_what_its_own_notebook_holds(
    client: PoolClient, words: tuple[str, ...], between: tuple[str, ...]
) -> None:
    done = client.do("run", "-n", "1", "--", *between, COMMAND, *words, env=NOTEBOOK)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    assert line.startswith("Error: this notebook holds 1 GPU")
    assert line.endswith(
        " itself and keeps it while this command waits, so it would wait forever. What to do: run the "
        "program itself, without `bitfusion`, on what is held already; or ask for less; "
        "or run this command elsewhere"
    )
    assert "Waiting for GPUs" not in done.stderr
    assert client.entries(WAITING) == client.entries(HELD) == []


def test_what_another_holds_is_waited_for_inside_a_lease(client: PoolClient) -> None:
    other = client.start("run", "-n", "1", "-p", "0.8", "--", "sleep", "60", env={"BITFUSION_LABEL": "other"})
    client.until_held()
    inner = ("run", "-n", "2", "-p", "0.5", "--timeout", f"{scaled(300):.0f}ms", "--", "true")
    done = client.do("run", "-n", "1", "-p", "0.1", "--", COMMAND, *inner, env=NOTEBOOK)
    assert "timed out after" in done.stderr
    os.killpg(other.pid, signal.SIGKILL)
    finish(other)


def lines_of_a_wait(client: PoolClient, **env: str) -> list[str]:
    """What somebody who waits is told while the queue before him gets shorter."""
    holder = client.start("run", "-n", "2", "--", "sleep", "60")
    client.until_held()
    first = client.start("run", "-n", "2", "--", "true")
    client.until_waiting(1)
    second = client.start("run", "-n", "2", "--", "true", env=env)
    lines: list[str] = []

    def read_lines(until: str = "nothing") -> None:
        """Until it has been told this, or ends."""
        assert second.stderr is not None
        while (not lines or until not in lines[-1]) and (line := second.stderr.readline()):
            if "Waiting for GPUs" in line:
                lines.append(line)

    read_lines("position 2 of 2")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    client.until_waiting(1)
    if env:
        read_lines("position 1 of 1")
    else:
        time.sleep(scaled(0.5))  # the change is not told
    os.killpg(holder.pid, signal.SIGKILL)
    read_lines()
    finish(second)
    holder.communicate()
    return lines


def test_people_are_told_of_a_wait_at_once_and_then_once_a_minute(client: PoolClient) -> None:
    (line,) = lines_of_a_wait(client)
    assert "position 2 of 2" in line


def test_a_program_that_reads_the_lines_is_told_every_change(client: PoolClient) -> None:
    lines = lines_of_a_wait(client, BITFUSION_POOL_ALL_LINES="1")
    assert ["position 2 of 2" in lines[0], "position 1 of 1" in lines[-1]] == [True, True]


def test_lines_for_people_come_once_a_minute() -> None:
    now, log = [0.0], Mock()
    told = WaitingLines(Contact("id", log, Emulation()), False, lambda: now[0])
    for second in range(0, 200, 5):
        now[0] = 1000.0 + second
        told.tell(f"at {second}", "")
    assert [call.args for call in log.log.call_args_list] == [("at 0",), ("at 60",), ("at 120",), ("at 180",)]


def test_what_runs_in_the_program_is_not_read_by_the_one_who_asked_for_all_lines(client: PoolClient) -> None:
    done = client.do("run", "-n", "1", "--", "printenv", env={"BITFUSION_POOL_ALL_LINES": "1"})
    assert "BITFUSION_POOL_ALL_LINES" not in done.stdout


def test_a_kernel_inside_a_notebook_is_told_that_this_holds_what_it_waits_for(client: PoolClient) -> None:
    inner = ("run", "-n", "2", "--timeout", f"{scaled(300):.0f}ms", "--", "true")
    read = ("/usr/bin/env", "BITFUSION_POOL_ALL_LINES=1", COMMAND)  # as a kernel's proxy does
    notebook = client.do("run", "-n", "1", "--", *read, *inner, env=NOTEBOOK)
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
