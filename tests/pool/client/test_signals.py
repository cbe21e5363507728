"""What signals do to a run, while it waits and while its program runs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from bitfusion_pool.ledger.entries import HELD, WAITING
from tests.pool.pool_client import COMMAND, PoolClient, finish
from tests.support.machine import scaled
from tests.support.waiting import wait_until

TALKER = """
import signal, sys, time
def say(number, _):
    print("got", signal.Signals(number).name[3:], flush=True)
    if number == signal.SIGTERM: sys.exit(3)
signal.signal(signal.SIGINT, say)
signal.signal(signal.SIGTERM, say)
print("ready", flush=True)
while True:
    time.sleep(0.05)  # a signal just before a sleep is noticed after it
"""
ENDED = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "status"), ENDED)
def test_a_signal_ends_the_wait_and_leaves_no_entry(
    client: PoolClient, everything_taken: subprocess.Popen[str], number: int, status: int
) -> None:
    process = client.start("run", "-n", "1", "--", "echo", "ran")
    assert process.stderr is not None
    while "Waiting for GPUs" not in process.stderr.readline():
        pass
    os.kill(process.pid, number)
    out, err = finish(process)
    assert (process.returncode, out) == (status, "")
    assert "Traceback" not in err
    assert client.entries(WAITING) == []
    assert os.listdir(client.folder / "bells") == []
    assert len(os.listdir(client.folder / "locks")) == 1


@pytest.mark.parametrize("setting", ["sigint", "sigterm"])
def test_an_ignored_signal_does_not_end_the_wait(
    client: PoolClient, everything_taken: subprocess.Popen[str], setting: str
) -> None:
    number = signal.SIGINT if setting == "sigint" else signal.SIGTERM
    process = client.start(
        "run", "-n", "1", "--", "echo", "ran", env={"BITFUSION_POOL_MANNERS": f"{setting}=ignore"}
    )
    client.until_waiting(1)
    os.kill(process.pid, number)
    os.killpg(everything_taken.pid, signal.SIGKILL)
    out, _ = finish(process)
    assert (process.returncode, out) == (0, "ran\n")


def test_a_signal_that_kills_the_waiter_leaves_nothing_either(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    process = client.start("run", "-n", "1", "--", "true", env={"BITFUSION_POOL_MANNERS": "sigint=die"})
    client.until_waiting(1)
    os.kill(process.pid, signal.SIGINT)
    finish(process)
    assert process.returncode == -signal.SIGINT
    client.admin("reap")
    assert client.entries(WAITING) == []


def talking(client: PoolClient, settings: str) -> subprocess.Popen[str]:
    env = {"BITFUSION_POOL_MANNERS": settings}
    process = client.start("run", "-n", "1", "--", sys.executable, "-c", TALKER, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_signals_are_forwarded_to_the_program_once(client: PoolClient) -> None:
    process = talking(client, "")
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "got INT\n"
    os.kill(process.pid, signal.SIGTERM)
    out, err = finish(process)
    assert (process.returncode, out) == (3, "got TERM\n")
    assert "Released GPUs on 1 servers" in err
    assert client.entries(HELD) == []


def test_ignored_signals_reach_neither_wrapper_nor_program(client: PoolClient) -> None:
    process = talking(client, "sigint=ignore")
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = finish(process)
    assert (process.returncode, out) == (3, "got TERM\n")


@pytest.mark.parametrize(("setting", "number"), [("sigint", signal.SIGINT), ("sigterm", signal.SIGTERM)])
def test_a_wrapper_that_dies_leaves_the_program_and_its_gpus(
    client: PoolClient, setting: str, number: signal.Signals
) -> None:
    process = talking(client, f"{setting}=die")
    os.kill(process.pid, number)
    assert process.wait(scaled(20)) == -number
    client.admin("reap")
    assert len(client.entries(HELD)) == 1
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: client.admin("reap") and not client.entries(HELD))


def in_a_terminal(client: PoolClient) -> tuple[int, int, bytes]:
    """The talking program under a `bitfusion run` that leads a session: pid, terminal, what was said."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execve(
                "/bin/sh",
                ["sh", "-c", 'exec "$0" run -n 1 -- "$1" -c "$2"', COMMAND, sys.executable, TALKER],
                client.environ,
            )
        finally:
            os._exit(99)
    seen = b""
    while b"\nready\r\n" not in seen:  # the log shows the script too
        seen += os.read(terminal, 4096)
    return pid, terminal, seen


def test_a_terminal_that_hangs_up_ends_the_program(client: PoolClient) -> None:
    pid, terminal, _ = in_a_terminal(client)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert client.entries(HELD) == []


def test_ctrl_c_of_a_terminal_reaches_the_program_once(client: PoolClient) -> None:
    pid, terminal, seen = in_a_terminal(client)
    try:
        os.write(terminal, b"\x03")
        while b"got INT\r\n" not in seen:
            seen += os.read(terminal, 4096)
        os.kill(pid, signal.SIGTERM)
        while True:
            try:
                more = os.read(terminal, 4096)
            except OSError:
                break
            if not more:
                break
            seen += more
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    said = [line.removeprefix(b"^C") for line in seen.splitlines()]
    assert (said.count(b"got INT"), said.count(b"got TERM")) == (1, 1)
