"""`jupyter console` in a real terminal. It prints displays, and can neither update nor remove them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import FIRST_CELL
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.terminal import CTRL_C, Console

HOW_TO_STOP = "To stop waiting, interrupt the kernel. The notebook is not lost.\n"


@pytest.fixture
def console(kernelspecs: Path, pool: Pool, tmp_path: Path) -> Iterator[Console]:
    made = Console(FIRST_CELL, tmp_path)
    made.wait_for("In [1]: ", limit_s=60)
    yield made
    made.close()
    wait_for_no_process(pool, 5)


def run_and_wait(console: Console, line: str) -> str:
    """Run a cell that waits for a GPU; what is shown while it waits.

    In whatever kernel, the console shows nothing before the reply of a cell that is not busy 50 ms after it
    was sent. On a machine that stands still for so long it is sent again.
    """
    for _ in range(4):
        console.run(line)
        try:
            return console.wait_for(HOW_TO_STOP, limit_s=3)
        except AssertionError:
            console.type(CTRL_C)
            console.wait_for("WaitCancelled")
            console.wait_for("In [")
    console.run(line)
    return console.wait_for(HOW_TO_STOP)


def test_a_cell_that_waits_says_so_at_once_and_then_runs(console: Console, pool: Pool) -> None:
    with pool.held("digits.ipynb"):
        shown = run_and_wait(console, "print('my', 'turn')")
        assert "Asked for 1 GPU at " in shown
        assert "Position 1 of 1 in the queue\nHeld by:\n  root: digits.ipynb (1 GPU, since " in shown
    assert console.wait_for("In [2]: ").startswith("\rmy turn\n")


def test_ctrl_c_ends_the_wait_in_words_and_the_next_cell_asks_again(console: Console, pool: Pool) -> None:
    with pool.held("digits.ipynb"):
        run_and_wait(console, "print('never')")
        console.type(CTRL_C)
        said = console.wait_for("In [1]: ")
        assert "WaitCancelled: Waiting for GPUs was cancelled.\nAsked for: 1 GPU\n" in said
        assert "What to do: run the cell again to wait again.\n" in said
        run_and_wait(console, "print('lat' + 'er')")
    assert "later\n" in console.wait_for("In [2]: ")


def test_commands_are_answered_without_a_gpu(console: Console, pool: Pool) -> None:
    with pool.held("digits.ipynb"):
        console.run("%bitfusion")
        assert "Request   1 GPU\n" in console.wait_for("In [2]: ")
        console.run("%bitfusion pool")
        console.wait_for("root: digits.ipynb")
    assert not pool.waiting()
