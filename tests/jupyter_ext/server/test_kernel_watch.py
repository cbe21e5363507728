"""The states of kernels are followed over restarts; kernels that are not ours are quietly none."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.kernel_state import states
from jupyter_ext.server.kernel_watch import ROUND, KernelWatch
from tests.jupyter_ext.server.stand_in_proxy import STATE, StandInProxy, stand_in_proxy
from tests.support.machine import scaled

Json = dict[str, Any]
Change = tuple["str | None", ...]


class Followed:
    """A watch of these connection files, and what it has told."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.changes: list[Change] = []
        self.watch = KernelWatch(lambda: self.files, os.environ, self._note, logging.getLogger("watch"))

    def _note(self, name: str, before: Json | None, after: Json | None) -> None:
        told = (None if state is None else str(state["state"]) for state in (before, after))
        self.changes.append((name, *told))

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(int(scaled(8) / 0.02)):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(self.changes)


def followed(files: dict[str, str], test: Callable[[Followed], Awaitable[None]]) -> Followed:
    """What was told while `test` went on."""

    async def run() -> Followed:
        what = Followed(files)
        what.watch.start()
        try:
            await test(what)
        finally:
            await what.watch.stop()
        return what

    return asyncio.run(run())


def test_each_change_is_told_and_a_kernel_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "kernel-abc.json"

    async def test(what: Followed) -> None:
        await what.watch.look()
        await what.until(lambda: what.watch.states.get("abc") == STATE)
        assert not what.watch.somebody_waits
        proxy.become(state="waiting")
        await what.until(lambda: what.watch.somebody_waits)
        what.files = {}
        await what.watch.look()

    with stand_in_proxy(file) as proxy:
        changes = followed({"abc": str(file)}, test).changes
    assert changes == [("abc", None, "none"), ("abc", "none", "waiting"), ("abc", "waiting", None)]


def test_a_restart_keeps_the_state_and_what_its_file_says(tmp_path: Path) -> None:
    file = tmp_path / "kernel-abc.json"

    async def test(what: Followed) -> None:
        await what.watch.look()
        await what.until(lambda: len(what.changes) == 1)
        proxy.become(state="idle", granted_at=5.0)
        await what.until(lambda: len(what.changes) == 2)
        by_file = {name: STATE[name] for name in ("version", "since", "idle_since", "notebook")}
        states.write(proxy.folder, {**by_file, "state": "parked"})
        proxy.end()
        await what.until(lambda: len(what.changes) == 3)
        assert what.watch.states["abc"]["granted_at"] == 5.0
        with stand_in_proxy(file):
            await what.until(lambda: len(what.changes) == 4)

    proxy = StandInProxy(file)
    changes = followed({"abc": str(file)}, test).changes
    assert [change[2] for change in changes] == ["none", "idle", "parked", "none"]


def test_what_is_no_kernel_of_ours_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain, torn = tmp_path / "kernel-plain.json", tmp_path / "kernel-torn.json"
    plain.write_text('{"key": "of-another-kernel"}')
    torn.write_text("{")
    files = {"plain": str(plain), "torn": str(torn), "missing": str(tmp_path / "kernel-x.json")}

    async def test(what: Followed) -> None:
        assert await what.watch.look() == {}
        await asyncio.sleep(ROUND)  # one more
        assert await what.watch.look() == {}

    assert followed(files, test).changes == []
    assert caplog.messages == []


def test_a_proxy_that_takes_no_more_watchers_is_not_asked_again_soon(tmp_path: Path) -> None:
    file = tmp_path / "kernel-abc.json"

    async def test(what: Followed) -> None:
        proxy.refuses_watchers = True
        for _ in range(3):
            assert await what.watch.look() == {}

    with stand_in_proxy(file) as proxy:
        assert followed({"abc": str(file)}, test).changes == []


def test_no_more_kernels_are_followed_than_a_hundred(tmp_path: Path) -> None:
    files = {str(number): str(tmp_path / f"kernel-{number}.json") for number in range(150)}

    async def test(what: Followed) -> None:
        await what.watch.look()
        assert len(what.watch._kernels) == 100

    followed(files, test)
