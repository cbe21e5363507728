"""How `bitfusion run` releases its GPUs, whatever happened to its reader, its ledger or its children."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from bitfusion_pool.ledger.entries import HELD
from tests.pool.pool_client import COMMAND, LIMIT_S, PoolClient, finish, uniform
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def test_a_killed_wrapper_keeps_the_gpus_as_long_as_its_program_lives(client: PoolClient) -> None:
    process = client.start("run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    program = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    waiting = client.start("run", "-n", "1", "--", "true")
    client.until_waiting(1)
    assert client.admin("reap").stdout.startswith("released 0 ")
    os.kill(program, signal.SIGKILL)
    assert waiting.wait(scaled(20)) == 0
    waiting.communicate()
    process.communicate()


def test_gpus_stay_taken_while_something_the_program_left_behind_may_use_them(client: PoolClient) -> None:
    done = client.start("run", "-n", "2", "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    out, err = finish(done)
    assert done.returncode == 0
    assert uniform(err).splitlines()[-1] == (
        "[WARN] TIME The GPUs stay allocated until the processes the command left behind have ended"
    )
    assert len(client.entries(HELD)) == 1
    os.kill(int(out), signal.SIGKILL)
    wait_until(lambda: client.admin("reap").stdout.startswith("released 1 ") or not client.entries(HELD))


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_a_reader_that_is_gone_does_not_keep_it_from_releasing(client: PoolClient, stream: str) -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [COMMAND, "run", "-n", "2", "--", "sh", "-c", "read line; exit 5"],
        env={**client.environ, "BITFUSION_POOL_MANNERS": f"stream={stream}"},
        stdin=subprocess.PIPE,
        stdout=write_end if stream == "stdout" else subprocess.DEVNULL,
        stderr=write_end if stream == "stderr" else subprocess.DEVNULL,
    )
    os.close(write_end)
    client.until_held()
    os.close(read_end)
    process.communicate(b"go\n", timeout=scaled(LIMIT_S))
    assert process.returncode == 5
    assert client.entries(HELD) == []
    assert os.listdir(client.folder / "locks") == []


def test_a_reader_that_hangs_does_not_keep_the_gpus(client: PoolClient) -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [COMMAND, "run", "-n", "2", "--", "sh", "-c", "read line; exit 5"],
        env=client.environ,
        stdin=subprocess.PIPE,
        stderr=write_end,
    )
    try:
        said = b""
        while b"telemetry" not in said:
            said += os.read(read_end, 4096)
        # an open file of our own, so that only our writes do not block
        filler = os.open(f"/proc/self/fd/{write_end}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            try:
                while True:
                    os.write(filler, b"x" * size)
            except BlockingIOError:
                pass
        os.close(filler)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        wait_until(lambda: not client.entries(HELD))
        assert process.poll() is None
    finally:
        os.close(write_end)
        os.close(read_end)
        process.communicate(timeout=scaled(LIMIT_S))
    assert process.returncode == 5


def test_a_ledger_lost_while_the_program_runs_does_not_change_its_status(client: PoolClient) -> None:
    process = subprocess.Popen(
        [COMMAND, "run", "-n", "1", "--", "sh", "-c", "read line; exit 4"],
        env=client.environ,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    client.until_held()
    for ending in ("", "-wal", "-shm"):
        path = client.folder / f"ledger.db{ending}"
        if path.exists():
            path.unlink()
    (client.folder / "ledger.db").write_text("damaged")
    _, err = process.communicate("go\n", timeout=scaled(LIMIT_S))
    assert process.returncode == 4
    assert uniform(err).splitlines()[-1] == (
        f"[WARN] TIME Unable to release GPUs: pool ledger {client.folder}/ledger.db is damaged: "
        "file is not a database. What to do: end the programs that use the pool, then make a new one: "
        f"bitfusion-pool --dir {client.folder} init --force"
    )
