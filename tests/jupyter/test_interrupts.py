"""Interrupts of code of any kind, and around the moment at which a cell begins to run: none is lost.

The environment variable KILL_ROUNDS says how many rounds each case has (1).
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, KILL_ROUNDS, OURS, PLAIN, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.interrupt_matrix import CODE, ENDED, WAYS, kinds_for, telling_begin
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled

ENDS = ("KeyboardInterrupt", "WaitCancelled", "ReplyLost")
OFFSETS = (-0.2, -0.1, -0.05, 0.0, 0.02, 0.1)
"""Seconds between the moment at which a first cell is expected to begin, and its interrupt."""


def _interrupted(kernel: LiveKernel, code: str, after: float) -> Cell:
    """A first cell that is interrupted so long after the kernel's start, or at once if that has passed."""
    begin = time.monotonic()
    kernel.connect()
    cell = kernel.client.send(code, allow_stdin=True)
    kernel.client.pump(lambda: cell.messages, 20, "the cell's arrival")
    time.sleep(max(0.0, begin + after - time.monotonic()))
    kernel.interrupt()
    return kernel.client.finish(cell, 20)


def _still_works(kernel: LiveKernel) -> None:
    cell = kernel.run("print('unharmed')")
    assert (cell.status, cell.stream()) == ("ok", "unharmed\n")
    kernel.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.long] * (way != "button")) for way in WAYS]
)
@pytest.mark.usefixtures("kernelspecs")
def test_code_of_any_kind_is_interrupted_in_every_way_as_in_plain_ipykernel(
    way: str, pool: Pool, tmp_path: Path
) -> None:
    kinds = kinds_for(way)
    with WAYS[way](PLAIN, tmp_path / "plain") as notebook:
        plain = {kind: notebook.interrupt_cell(CODE[kind]) for kind in kinds}
    with WAYS[way](FIRST_CELL, tmp_path / "ours") as notebook:
        ours = {kind: notebook.interrupt_cell(CODE[kind]) for kind in kinds}
    assert {kind: ended.name for kind, ended in ours.items()} == {
        kind: ended.name for kind, ended in plain.items()
    }
    assert {ended.name for ended in ours.values()} <= set(ENDED)
    slow = {
        kind: ended.seconds for kind, ended in ours.items() if ended.seconds > plain[kind].seconds + scaled(3)
    }
    assert not slow, f"as if the code had gone on: {slow}"


def test_a_cell_that_holds_the_interpreters_lock_restarts_as_fast_as_plain(
    launch: Launch, tmp_path: Path
) -> None:
    """Restart interrupts first, then asks; a kernel that hears neither is killed 2.5 s later."""
    seconds = {}
    for name in (PLAIN, FIRST_CELL):
        kernel = launch(name)
        kernel.run("1")
        begun = tmp_path / name
        kernel.client.send(telling_begin(CODE["regex"], begun))
        kernel.client.pump(begun.exists, 10, "the begin of the cell")
        kernel.client.settle(0.5)
        begin = time.monotonic()
        kernel.manager.shutdown_kernel()
        seconds[name] = time.monotonic() - begin
    assert seconds[FIRST_CELL] < seconds[PLAIN] + scaled(1.5), seconds


@pytest.mark.long
@pytest.mark.rounds
@pytest.mark.parametrize("name", OURS)
@pytest.mark.timeout(60 + 12 * len(OFFSETS) * KILL_ROUNDS)
def test_a_cell_is_interrupted_around_the_moment_at_which_it_begins(launch: Launch, name: str) -> None:
    first = launch(name)
    begin = time.monotonic()
    first.connect()
    cell = first.client.send("print('runs')")
    first.client.pump(cell.stream, 20, "the first cell")
    begins = time.monotonic() - begin
    first.stop()
    for _ in range(KILL_ROUNDS):
        for offset in OFFSETS:
            kernel = launch(name)
            ended = _interrupted(kernel, "import time; time.sleep(600)", begins + scaled(offset) / 2)
            assert ended.error["ename"] in ENDS
            _still_works(kernel)


@pytest.mark.rounds
@pytest.mark.timeout(60 + 30 * KILL_ROUNDS)
def test_the_debugger_of_a_first_cell_is_interrupted_1_s_after_the_start(launch: Launch) -> None:
    for _ in range(KILL_ROUNDS):
        kernel = launch(FIRST_CELL)
        ended = _interrupted(kernel, "import pdb; pdb.set_trace()", 1.0)
        if ended.status == "error":
            assert ended.error["ename"] in ENDS
        _still_works(kernel)
