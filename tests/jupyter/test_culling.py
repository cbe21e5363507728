"""Cullers: Jupyter's own, and those that read its API, see a kernel without its GPU as any idle one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.jupyter.cells import running_cell
from tests.jupyter.client import Cell, Client
from tests.jupyter.conftest import FIRST_CELL, PLAIN
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Kernels, Server
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


@contextlib.contextmanager
def culling(folder: Path, after_s: int) -> Iterator[Server]:
    """A server that ends idle kernels, whoever is connected; not those that run."""
    options = {"cull_idle_timeout": after_s, "cull_interval": 1, "cull_connected": True}
    server = Server(folder, options=[f"--MappingKernelManager.{name}={to}" for name, to in options.items()])
    try:
        yield server
    finally:
        server.stop()


def seen(server: Server, kernel_id: str) -> dict[str, Any] | None:
    """What a culler sees, Kubeflow's as well; None once it is culled."""
    try:
        found: dict[str, Any] = server.ask("GET", f"/api/kernels/{kernel_id}")
    except HTTPError as error:
        if error.code != 404:
            raise
        return None
    return found


def activity(server: Server, kernel_id: str) -> float:
    """When it was last active, since the epoch, once the server has heard of its last cell's end."""

    def idle() -> dict[str, Any] | None:
        told = seen(server, kernel_id)
        return told if told and told["execution_state"] == "idle" else None

    told = wait_until(idle, lambda: seen(server, kernel_id))
    at = datetime.strptime(told["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ")
    return at.replace(tzinfo=timezone.utc).timestamp()


def culled_at(server: Server, *kernel_ids: str) -> list[float]:
    """When each of them was ended."""
    ends: dict[str, float] = {}

    def look() -> bool:
        for each in kernel_ids:
            if seen(server, each) is None:
                ends.setdefault(each, time.time())
        return len(ends) == len(kernel_ids)

    wait_until(look, lambda: [seen(server, each) for each in kernel_ids], 60)
    return [ends[each] for each in kernel_ids]


@pytest.mark.long
def test_a_kernel_that_gave_its_gpu_back_is_idle_and_culled_as_a_plain_one(
    kernelspecs: Path, pool: Pool, tmp_path: Path
) -> None:
    after_s = round(scaled(6))
    with culling(tmp_path, after_s) as server:
        ours, plain = server.start_kernel(FIRST_CELL), server.start_kernel(PLAIN)
        client, other = server.connect(ours), server.connect(plain)
        client.run("x = 1")
        client.run("%bitfusion release -y")
        other.run("x = 1")
        assert pool.leases() == []
        last = activity(server, ours), activity(server, plain)
        ends = culled_at(server, ours, plain)
        for end, begin in zip(ends, last, strict=True):
            assert after_s <= end - begin < after_s + scaled(4)


@pytest.mark.parametrize("how", ["restart", pytest.param("death", marks=pytest.mark.long)])
def test_a_kernel_between_two_processes_is_never_dead_nor_culled_and_keeps_its_lease(
    kernelspecs: Path, pool: Pool, tmp_path: Path, how: str
) -> None:
    with culling(tmp_path, round(scaled(10))) as server:
        kernel_id = server.start_kernel(FIRST_CELL)
        client = server.connect(kernel_id)
        running_cell(client)
        (before,) = pool.leases()
        states: list[str | None] = []
        in_time = True
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.02):
                told = seen(server, kernel_id)
                states.append(told["execution_state"] if told else None)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            if how == "restart":
                server.ask("POST", f"/api/kernels/{kernel_id}/restart")
            else:
                kernels = Kernels(server, pool)
                old = kernels.roles()["proxy"]
                kernels.kill(old)
                in_time = kernels.wait_for_the_restarted_one(old)
            server.wait_for_answer(client)
        finally:
            over.set()
            watcher.join()
        assert states, "seen at least once"
        assert None not in states
        assert "dead" not in states
        assert client.run("6 * 7").result == "42"
        assert [each["id"] for each in pool.leases()] == [before["id"]] or not in_time


@pytest.mark.long
def test_neither_the_warning_of_an_idle_release_nor_the_release_holds_a_culler_off(
    kernelspecs: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITFUSION_IDLE_RELEASE", "1m")
    with culling(tmp_path, 75) as server:
        ours, plain = server.start_kernel(FIRST_CELL), server.start_kernel(PLAIN)
        client, other = server.connect(ours), server.connect(plain)
        cell = client.run("x = 1")
        other.run("x = 1")
        last = activity(server, ours)
        wait_for_words(client, cell, "This kernel gives its GPU back at")
        wait_for_words(client, cell, "This kernel gave its GPU back at")
        assert pool.leases() == []
        assert activity(server, ours) - last < 10
        mine, plains = culled_at(server, ours, plain)
        assert mine - plains < scaled(10)


def wait_for_words(client: Client, cell: Cell, words: str) -> None:
    def shown() -> list[str]:
        return [
            each["content"]["data"]["text/plain"] for each in cell.of("display_data", "update_display_data")
        ]

    client.pump(lambda: any(words in text for text in shown()), 45, words, shown)
