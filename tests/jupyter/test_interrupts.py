"""Interrupts of code of any kind, and around the moment at which a cell begins to run: none is lost.

The environment variable KILL_ROUNDS says how many rounds each case has (1).
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.jupyter import interrupt_matrix
from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, KILL_ROUNDS, OURS, PLAIN, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.interrupt_matrix import (
    CODE,
    LATER_S,
    NAMES,
    WAYS,
    Interrupted,
    compare,
    kinds_for,
    telling_begin,
)
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
    "way",
    # The button makes a server's manager do what interrupt_kernel does.
    [pytest.param(way, marks=[pytest.mark.long] * (way in ("interrupt_kernel", "Ctrl-C"))) for way in WAYS],
)
@pytest.mark.usefixtures("kernelspecs")
def test_code_of_any_kind_is_interrupted_in_every_way_as_in_plain_ipykernel(
    way: str, pool: Pool, tmp_path: Path
) -> None:
    with WAYS[way](PLAIN, tmp_path / "plain") as plain, WAYS[way](FIRST_CELL, tmp_path / "ours") as ours:
        rounds = [compare(kind, plain, ours) for kind in kinds_for(way)]
    assert [found for found in rounds if found.missed(found.plain + found.ours, scaled(LATER_S))] == []


class Played:
    """Cells that end one after another as it is told."""

    def __init__(self, *ends: Interrupted) -> None:
        self._ends = list(ends)

    def begin(self, code: str) -> None:
        assert code

    def interrupt(self) -> Interrupted:
        return self._ends.pop(0)


@pytest.mark.parametrize(
    ("kind", "ends", "good"),
    [
        ("thread join", ("KeyboardInterrupt", 0.1), True),
        ("thread join", ("", 0.1), False),  # it has ended by itself,
        ("big integers", ("KeyboardInterrupt", 2.1), False),  # or after what it had to do,
        ("await", ("KeyboardInterrupt", 0.1), False),
        ("await", ("CancelledError", 0.1), True),
        ("!sleep", ("", 0.1), True),
        ("regex", ("ReplyLost", 0.1), False),  # or the interrupt has hit the kernel itself
    ],
)
def test_one_lost_interrupt_of_three_is_seen(
    monkeypatch: pytest.MonkeyPatch, kind: str, ends: tuple[str, float], good: bool
) -> None:
    monkeypatch.setattr(interrupt_matrix, "RUNS_S", 0.0)
    usual = Interrupted(0.1, NAMES.get(kind, "KeyboardInterrupt"))
    found = compare(
        kind, Played(usual, usual, usual), Played(usual, Interrupted(ends[1], ends[0]), usual), rounds=3
    )
    assert found.good == good


def test_a_cell_that_holds_the_interpreters_lock_restarts_as_fast_as_plain(
    launch: Launch, tmp_path: Path
) -> None:
    """Restart interrupts first, then asks; a kernel that hears neither is killed 2.5 s later."""
    seconds = {}
    for name in (PLAIN, FIRST_CELL, FIRST_CELL, FIRST_CELL):  # again where the machine has stood still
        kernel = launch(name)
        kernel.run("1")
        begun = tmp_path / f"{name}-{kernel.pid}"
        kernel.client.send(telling_begin(CODE["regex"], begun))
        kernel.client.pump(begun.exists, 10, "the begin of the cell")
        kernel.client.settle(0.5)
        begin = time.monotonic()
        kernel.manager.shutdown_kernel()
        seconds[name] = time.monotonic() - begin
        if seconds.get(FIRST_CELL, float("inf")) < seconds[PLAIN] + scaled(1.5):
            return
    pytest.fail(str(seconds))


@pytest.mark.long
@pytest.mark.usefixtures("kernelspecs", "pool")
def test_a_kernel_that_died_comes_back_under_presses_of_the_button(tmp_path: Path) -> None:
    """Plain ipykernel does not: each press ends it while it starts, until the server gives it up."""
    with WAYS["button"](FIRST_CELL, tmp_path) as notebook:
        assert isinstance(notebook, interrupt_matrix.Notebook)
        dies = notebook.client.send("import os; os.kill(os.getpid(), 9)")
        notebook.client.pump(lambda: dies.of("error"), 10, "the death")
        end = time.monotonic() + 20  # plain is given up after 15
        while time.monotonic() < end:
            with contextlib.suppress(HTTPError):  # of a server that is starting it
                notebook.send_interrupt()
            time.sleep(0.2)
        assert notebook.client.run("6 * 7", 20).result == "42"


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
