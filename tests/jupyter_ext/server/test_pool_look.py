"""One look for all pages, as often as somebody needs it; counted, with seconds made short."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.errors import BitfusionError, ServersUnreachable
from jupyter_ext.server.client_run import MOST_BYTES, run_client
from jupyter_ext.server.pool_look import Pace, PoolLook
from tests.support.machine import scaled
from tests.support.processes import processes_with
from tests.support.waiting import wait_until

FREE = "- server 0 [a:1]: running 0 tasks\n   |- GPU 0: free memory 9 MiB / 9 MiB (Simulated)\n"
WAITED_FOR = FREE + "- waiting, position 1: ada: x (1 GPU)\n"
NEVER = 1e6


class Pool:
    """Its client's output, and what has been told of it."""

    def __init__(self, **pace: float) -> None:
        self.output = FREE
        self.error: BitfusionError | None = None
        self.changes = 0
        self.told: list[str] = []
        self.kernel_waits = False
        self.look = PoolLook(
            self.list_gpus,
            (),
            somebody_waits=lambda: self.kernel_waits,
            on_change=self.count,
            on_notice=lambda kind, message: self.told.append(kind),
            pace=Pace(**({"fast": 0.05, "slow": NEVER, "unasked": NEVER} | pace)),
        )

    async def list_gpus(self) -> str:
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        return self.output

    def count(self) -> None:
        self.changes += 1

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(int(scaled(8) / 0.01)):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(self.look.to_json())


def run(pool: Pool, test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await test()
        finally:
            await pool.look.stop()

    asyncio.run(whole())


def test_ten_pages_cost_what_one_costs() -> None:
    pool = Pool()

    async def test() -> None:
        first = await asyncio.gather(*(pool.look.ask() for _ in range(10)))
        again = await asyncio.gather(*(pool.look.ask() for _ in range(10)))
        assert all(answer["seen_at"] == first[0]["seen_at"] for answer in [*first, *again])
        assert len(first[0]["servers"]) == 1

    run(pool, test)
    assert pool.look.looks == 1


def test_nobody_asks_nobody_looks() -> None:
    pool = Pool(slow=0.02, unasked=NEVER)

    async def test() -> None:
        await asyncio.sleep(0.1)
        assert pool.look.looks == 0
        await pool.look.ask()
        await pool.until(lambda: pool.look.looks > 1)
        pool.look._asked_at -= NEVER  # so long ago it was
        looks = pool.look.looks
        await asyncio.sleep(0.3)
        assert pool.look.looks == looks
        await pool.look.ask()
        await pool.until(lambda: pool.look.looks > looks)

    run(pool, test)


@pytest.mark.parametrize("who", ["of the pool", "a kernel of ours"])
def test_while_somebody_waits_it_is_looked_often(who: str) -> None:
    pool = Pool()
    if who == "of the pool":
        pool.output = WAITED_FOR
    else:
        pool.kernel_waits = True

    async def test() -> None:
        await pool.look.ask()
        await pool.until(lambda: pool.look.looks >= 4)
        pool.output, pool.kernel_waits = FREE, False
        await pool.until(lambda: not pool.look.report["waiting"])
        await asyncio.sleep(0.1)
        looks = pool.look.looks
        await asyncio.sleep(0.3)
        assert pool.look.looks == looks

    run(pool, test)


def test_only_what_differs_is_told() -> None:
    pool = Pool(slow=0.02)

    async def test() -> None:
        await pool.look.ask()
        await pool.until(lambda: pool.look.looks >= 4)
        assert pool.changes == 1
        pool.output = WAITED_FOR
        await pool.until(lambda: pool.changes == 2)

    run(pool, test)


def test_after_a_change_of_ours_it_is_looked_again_soon() -> None:
    pool = Pool()

    async def test() -> None:
        await pool.look.ask()
        pool.look.hurry()
        await pool.until(lambda: pool.look.looks == 2)

    run(pool, test)


def test_a_pool_that_is_lost_is_told_once_and_so_is_its_return() -> None:
    pool = Pool(slow=0.02)

    async def test() -> None:
        before = await pool.look.ask()
        pool.error = ServersUnreachable("", "i/o timeout")
        await pool.until(lambda: pool.look.looks >= 5)
        lost = pool.look.to_json()
        assert lost["error"]["code"] == "pool_out_of_reach"
        assert lost["error"]["next_step"]
        assert (lost["servers"], lost["seen_at"] >= before["seen_at"]) == (before["servers"], True)
        pool.error = None
        await pool.until(lambda: pool.look.to_json()["error"] is None)

    run(pool, test)
    assert pool.told == ["pool_lost", "pool_back"]


def client(folder: Path, text: str) -> list[str]:
    path = folder / "bitfusion"
    path.write_text(f"#!{sys.executable} -IS\nimport sys, time, os\n{text}\n")
    path.chmod(0o755)
    return [str(path), "list_gpus", "$(touch x); `x`"]


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "MARK": str(folder)}


def test_the_client_gets_its_words_as_they_are(tmp_path: Path) -> None:
    argv = client(tmp_path, "print(sys.argv[1:])")
    printed = asyncio.run(run_client(argv, environment(tmp_path)))
    assert printed.strip() == str(argv[1:])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print('Error: none of the servers responded'); sys.exit(1)", "None of the GPU servers answered."),
        ("sys.exit(3)", "printed nothing"),
        ("time.sleep(600)", "did not answer within"),
        (f"sys.stdout.write('x' * {3 * MOST_BYTES}); time.sleep(600)", "printed more than"),
        ("os.fork() or time.sleep(600)", "did not answer within"),
    ],
)
def test_a_client_that_fails_leaves_nothing(tmp_path: Path, text: str, told: str) -> None:
    limit = 0.3 if told == "did not answer within" else 20
    with pytest.raises(BitfusionError) as caught:
        asyncio.run(run_client(client(tmp_path, text), environment(tmp_path), limit=scaled(limit)))
    assert told in caught.value.user_message
    wait_until(lambda: not processes_with(f"MARK={tmp_path}"), limit_s=3)  # a killed one may take its time


def test_no_client_is_an_error_too(tmp_path: Path) -> None:
    missing: Any = [str(tmp_path / "none"), "list_gpus"]
    with pytest.raises(BitfusionError) as caught:
        asyncio.run(run_client(missing, {}))
    assert "No such file or directory" in caught.value.user_message


def test_who_waits_is_not_known_before_a_look_while_the_pool_is_away_and_long_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        pool = Pool(slow=100.0)
        assert pool.look.waiting is None
        pool.output = WAITED_FOR
        await pool.look.ask()
        assert pool.look.waiting == pool.look.report["waiting"] != []
        long_after = time.monotonic() + 201.0
        with monkeypatch.context() as later:
            later.setattr("jupyter_ext.server.pool_look.time.monotonic", lambda: long_after)
            assert pool.look.waiting is None
        pool.error = ServersUnreachable("", "nobody answers")
        await asyncio.sleep(0.06)
        await pool.look.ask()
        wanted = pool.look.waiting
        await pool.look.stop()
        assert wanted is None

    asyncio.run(scenario())
