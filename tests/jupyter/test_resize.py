"""Another size for a notebook that runs: what it has stays its own until the other has come."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests.jupyter.cells import resizing_cell, wait_for_death, waiting_cell
from tests.jupyter.chain import chain, wait_for_no_process
from tests.jupyter.conftest import OURS, Launch
from tests.jupyter.embedded_pool import Pool
from tests.pool.service.running_service import RunningService
from tests.support.machine import scaled

pytestmark = pytest.mark.timeout(120)

HAS_X = "print('x' in globals())"
KEPT = "This kernel keeps the GPUs that it has, and its variables."


def sizes(pool: Pool) -> list[tuple[int, float]]:
    """Of all leases."""
    found = [lease["request"] for lease in pool.leases()]
    return sorted((each["gpus"], each.get("partial", 1.0)) for each in found)


@pytest.mark.parametrize("name", OURS)
def test_one_gpu_from_half_to_whole_and_back(launch: Launch, pool: Pool, name: str) -> None:
    pool.write(gpus=1)
    kernel = launch(name)
    kernel.run("%bitfusion request -p 0.5 --now -y")
    kernel.run("x = 1")
    assert sizes(pool) == [(1, 0.5)]
    pid = kernel.pid
    to_whole = kernel.run("%bitfusion request -p 1 --now -y")
    assert "1 GPU × 50 % given back. Asking for 1 GPU × 100 %." in to_whole.stream(), "no room for both"
    assert "GPU 0" in to_whole.stream()
    assert sizes(pool) == [(1, 1.0)]
    assert kernel.run(HAS_X).stream() == "False\n"
    kernel.run("x = 1")
    to_half = kernel.run("%bitfusion request -p 0.5 --now -y")
    assert "1 GPU × 100 % given back. Asking for 1 GPU × 50 %." in to_half.stream()
    assert sizes(pool) == [(1, 0.5)]
    assert kernel.run(HAS_X).stream() == "False\n"
    assert kernel.pid == pid
    kernel.stop()
    wait_for_no_process(pool, 3)


@pytest.mark.parametrize("name", OURS)
def test_where_there_is_room_the_new_size_comes_before_the_old_one_goes(
    launch: Launch, pool: Pool, name: str
) -> None:
    pool.write(gpus=2)
    kernel = launch(name)
    kernel.run("x = 1")
    for partial, words in ((0.5, "1 GPU × 50 %"), (0.25, "1 GPU × 25 %"), (1.0, "1 GPU × 100 %")):
        cell = kernel.run(f"%bitfusion request -p {partial} --now -y")
        assert "given back.\n" in cell.stream()
        assert f"Request     {words}\n" in cell.stream()
        assert sizes(pool) == [(1, partial)]
        assert kernel.run(HAS_X).stream() == "False\n"
        kernel.run("x = 1")
    kernel.restart()
    assert kernel.run(HAS_X).stream() == "False\n"
    assert sizes(pool) == [(1, 1.0)], "a restart keeps the new size"
    kernel.stop()
    wait_for_no_process(pool, 3)


def test_the_size_that_it_has_is_nothing_to_do(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    for same in ("-n 1", "-p 1"):
        cell = kernel.run(f"%bitfusion request {same} --now -y")
        assert cell.stream() == "This kernel already has 1 GPU.\n"
    assert kernel.run(HAS_X).stream() == "True\n"
    (before,) = pool.leases()
    kernel.restart()
    assert kernel.run(HAS_X).stream() == "False\n"
    assert [lease["id"] for lease in pool.leases()] == [before["id"]], "a share of 1 is no other size"


def test_what_comes_within_the_time_is_taken(launch: Launch, pool: Pool) -> None:
    pool.write(gpus=2)
    mine, other = launch("bitfusion"), launch("bitfusion")
    for kernel in (mine, other):
        kernel.run("x = 1")
    cell = resizing_cell(mine.client, "-n 2")
    other.run("%bitfusion release -y")
    # one GPU is free, the other one is its own: it gets neither beside, as it needs two more
    shown = cell.of("display_data")[-1]["content"]["data"]["text/plain"]
    assert "This kernel keeps 1 GPU, and tries for 30 s at most." in shown
    mine.interrupt()
    mine.client.finish(cell, 10)
    assert KEPT in cell.error_text
    assert mine.run(HAS_X).stream() == "True\n"
    done = mine.run("%bitfusion request -n 2 --now -y")
    assert "1 GPU given back. Asking for 2 GPUs." in done.stream(), "now there is room without its own"
    assert sizes(pool) == [(2, 1.0)]


@pytest.mark.parametrize("how", ["interrupt", "cancel"])
def test_who_ends_the_wait_keeps_size_and_variables(launch: Launch, pool: Pool, how: str) -> None:
    pool.write(gpus=2)
    kernel = launch("bitfusion")
    with pool.held():
        kernel.run("x = 1")
        cell = resizing_cell(kernel.client, "-n 2")
        if how == "interrupt":
            kernel.interrupt()
        else:
            assert kernel.run("%bitfusion cancel").stream() == (
                "This kernel no longer waits for another size.\n"
            )
        kernel.client.finish(cell, 10)
        assert cell.error["ename"] == "SizeKept"
        assert f"{how}{'l' if how == 'cancel' else ''}ed after" in cell.error_text
        assert pool.waiting() == []
    assert kernel.run(HAS_X).stream() == "True\n"
    kernel.restart()
    assert kernel.run(HAS_X).stream() == "False\n"
    assert sizes(pool) == [(1, 1.0)], "a restart keeps it, too"


def test_what_to_do_when_nothing_comes_is_what_helps(launch: Launch, pool: Pool) -> None:
    pool.write(gpus=2)
    kernel = launch("bitfusion")
    with pool.held():
        kernel.run("x = 1")
        cell = resizing_cell(kernel.client, "-n 2")
        kernel.interrupt()
        kernel.client.finish(cell, 10)
        assert ("run `%bitfusion release`, the same request without --now, and a cell") in cell.error_text
        kernel.run("%bitfusion release -y")
        kernel.run("%bitfusion request -n 2")
        waits = waiting_cell(kernel.client, "6 * 7")
        assert len(pool.leases()) == 1, "the other one's: nobody waits for what this kernel holds"
    assert kernel.client.finish(waits, 10).result == "42"
    assert sizes(pool) == [(2, 1.0)]


def test_a_pool_that_counts_both_says_so_and_nothing_is_lost(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.write(gpus=2)
    base = Path(tempfile.mkdtemp())  # of a short path, for the socket
    service = RunningService(base, "--gpus", "simulated", "--gpus-per-user", "1").start()
    monkeypatch.setenv("BITFUSION_POOL", service.socket)
    kernel = launch("bitfusion")
    try:
        kernel.run("x = 1")
        cell = kernel.run("%bitfusion request -p 0.5 --now -y")
        assert cell.error["ename"] == "SizeKept"
        assert "1 GPUs, you have or wait for 1, and this request is for 1" in cell.error_text
        assert kernel.run(HAS_X).stream() == "True\n"
        kernel.run("%bitfusion release -y")
        kernel.run("%bitfusion request -p 0.5")
        assert kernel.run("6 * 7").result == "42"
        assert [entry.request.partial for entry in service.entries()] == [0.5]
    finally:
        kernel.stop()
        service.end()
        shutil.rmtree(base)


@pytest.mark.parametrize("how", ["restart", "shutdown", "kernel dies"])
def test_what_ends_the_kernel_ends_the_wait_beside_it(launch: Launch, pool: Pool, how: str) -> None:
    pool.write(gpus=2)
    kernel = launch("bitfusion")
    with pool.held():
        kernel.run("x = 1")
        cell = resizing_cell(kernel.client, "-n 2")
        if how == "restart":
            kernel.restart()
            assert kernel.run(HAS_X).stream() == "False\n"
            assert len(pool.leases()) == 2
        elif how == "shutdown":
            kernel.stop()
        else:
            os.kill(chain(pool, os.getpid())["kernel"].pid, signal.SIGKILL)
            wait_for_death(kernel.client, cell, 10)
        pool.wait_until_nobody_waits(5)


@pytest.mark.long
def test_two_that_hold_one_gpu_each_and_ask_for_two_both_keep_theirs(launch: Launch, pool: Pool) -> None:
    pool.write(gpus=2)
    kernels = [launch("bitfusion"), launch("bitfusion")]
    for kernel in kernels:
        kernel.run("x = 1")
    before = sorted(lease["id"] for lease in pool.leases())
    began = time.monotonic()
    cells = [kernel.client.send("%bitfusion request -n 2 --now -y") for kernel in kernels]
    for kernel, cell in zip(kernels, cells, strict=True):
        kernel.client.finish(cell, 45)
        assert KEPT in cell.error_text
        assert "not to be had within 30 s: position" in cell.error_text
    assert 29 < time.monotonic() - began < scaled(35)
    assert sorted(lease["id"] for lease in pool.leases()) == before
    assert pool.waiting() == []
    for kernel in kernels:
        assert kernel.run(HAS_X).stream() == "True\n"
        assert kernel.run("%bitfusion request").stream() == "The next start asks for 1 GPU.\n"


@pytest.mark.parametrize(
    ("size", "gpus", "asked"),
    [
        ("-n 2", 3, "Exchange 1 GPU for 2 GPUs? The variables of this notebook are lost. [y/N] "),
        ("-n 2", 2, "Give 1 GPU back and ask for 2 GPUs? The variables of this notebook are lost. [y/N] "),
    ],
)
def test_it_asks_before_and_changes_nothing_for_a_no(
    launch: Launch, pool: Pool, size: str, gpus: int, asked: str
) -> None:
    pool.write(gpus=gpus)
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    cell = kernel.client.send(f"%bitfusion request {size} --now", allow_stdin=True)
    kernel.client.pump(lambda: kernel.client.input_requests, 10, "the question")
    assert kernel.client.input_requests[-1]["content"]["prompt"] == asked
    kernel.client.answer("n")
    kernel.client.finish(cell, 10)
    assert cell.stream() == "Nothing was given back.\n"
    assert kernel.run("%bitfusion request").stream() == "The next start asks for 1 GPU.\n"
    assert kernel.run(HAS_X).stream() == "True\n"
