"""One look at the pool, by clients that answer, fail, hang, print for ever, or are not there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer, ask_pool
from tests.bitfusion_device_plugin.plugin.running_plugin import FakePool
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def _ask(client: Path, limit_s: float = 20.0) -> PoolAnswer:
    return asyncio.run(ask_pool([str(client)], 1.5, scaled(limit_s)))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_answer_is_units_with_the_overcommit(tmp_path: Path) -> None:
    pool = FakePool(tmp_path)
    pool.has(3)
    answer = _ask(pool.client)
    assert (answer.units, answer.problem) == (450, "")
    assert answer.seconds > 0


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'Error: no server answers' >&2; exit 3", "ended with status 3: Error: no server answers"),
        ("exit 1", "the client ended with status 1"),
        ("echo 'log line'", "the pool has no GPUs: log line"),
        ("true", "the pool has no GPUs"),
        ("kill -9 $$", "the client ended with status -9"),
        ("head -c 6000000 /dev/zero", "the client printed more than 4 MiB"),
        ("head -c 6000000 /dev/zero >&2", "the client printed more than 4 MiB"),
    ],
)
def test_what_is_no_answer_is_told_in_one_line(tmp_path: Path, script: str, problem: str) -> None:
    pool = FakePool(tmp_path)
    pool.says(script)
    answer = _ask(pool.client)
    assert answer.units is None
    assert problem in answer.problem
    assert "\n" not in answer.problem


def test_a_client_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    answer = _ask(tmp_path / "none")
    assert answer.units is None
    assert answer.problem == f"{tmp_path}/none cannot be started: No such file or directory"


def test_a_client_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pool = FakePool(tmp_path)
    pool.says(f"sleep 600 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait")
    pids, limit_s = tmp_path / "pids", 1.0
    while not pids.exists():  # in less time than it had it may not even have begun
        answer = _ask(pool.client, limit_s)
        assert answer.problem.startswith("the client did not answer within ")
        limit_s *= 2
    started = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(map(_runs, started)), "the client and its child have ended")


def test_a_probe_cancelled_while_its_client_starts_leaves_nothing(tmp_path: Path) -> None:
    pool = FakePool(tmp_path)
    pool.says("sleep 600; true")  # two processes

    async def scenario(moments: int) -> None:
        probe = asyncio.ensure_future(ask_pool([str(pool.client)], 1.0, 600))
        for _ in range(moments):
            await asyncio.sleep(0)
        probe.cancel()
        await asyncio.wait({probe})
        assert probe.cancelled()

    for moments in range(12):
        asyncio.run(scenario(moments))  # the suite's check for what tests leave behind sees the rest


def test_a_cancelled_probe_ends_its_client_and_stays_cancelled(tmp_path: Path) -> None:
    pool = FakePool(tmp_path)
    pool.says(f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600")

    async def scenario() -> None:
        probe = asyncio.ensure_future(ask_pool([str(pool.client)], 1.0, 600))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        probe.cancel()
        await asyncio.wait({probe})
        assert probe.cancelled()

    asyncio.run(scenario())
    assert not _runs(int((tmp_path / "pid").read_text()))
