"""Interrupts around the moment at which a cell begins to run, sent by jupyter_client: none is lost.

The environment variable KILL_ROUNDS says how many rounds each case has (1).
"""

from __future__ import annotations

import time

import pytest

from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, KILL_ROUNDS, OURS, Launch
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled

ENDS = ("KeyboardInterrupt", "WaitCancelled")
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
