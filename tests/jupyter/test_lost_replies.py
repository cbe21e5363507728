"""Cells whose reply the kernel loses: what follows works as in plain ipykernel, and they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, PLAIN, Launch
from tests.jupyter.interrupt_matrix import WAYS, Notebook
from tests.jupyter.live_kernel import LiveKernel
from tests.support.waiting import wait_until

BETWEEN_TWO_CELLS = """
kernel = get_ipython().kernel
whole = kernel.finish_metadata

def interrupted(*words, **named):
    kernel.finish_metadata = whole
    raise KeyboardInterrupt

kernel.finish_metadata = interrupted
"""
NO_JSON = """
kernel = get_ipython().kernel
whole = kernel.do_execute

async def unsendable(*words, **named):
    kernel.do_execute = whole
    return {"status": "ok", "execution_count": 1, "payload": [object()], "user_expressions": {}}

kernel.do_execute = unsendable
"""
BY_A_TIMER = """
import _thread, threading
kernel = get_ipython().kernel
whole = kernel.finish_metadata

def slow(*words, **named):
    kernel.finish_metadata = whole
    threading.Timer(0.05, _thread.interrupt_main).start()
    time.sleep(5)


kernel.finish_metadata = slow
"""
CUT_OFF = """
kernel, zmq = get_ipython().kernel, __import__("zmq")
whole = kernel.session.send

def cut_off(stream, kind, *words, **named):
    if kind != "execute_reply":
        return whole(stream, kind, *words, **named)
    kernel.session.send = whole
    for frame in [*named["ident"], b"<IDS|MSG>", b"signature"]:
        getattr(stream, "socket", stream).send(frame, zmq.SNDMORE)
    raise KeyboardInterrupt

kernel.session.send = cut_off
"""
ANEW = "import os, sys; os.execv(sys.executable, [sys.executable] + sys.orig_argv[1:])"

LOSSES = {"an interrupt between two cells": BETWEEN_TWO_CELLS, "a timer's interrupt": BY_A_TIMER}


def _lose(kernel: LiveKernel, code: str) -> Cell:
    """A cell whose reply is lost; None has come of it after a second."""
    kernel.run("1")
    lost = kernel.client.send(code)
    kernel.client.settle(1.0)
    return lost


def _is_told(kernel: LiveKernel, lost: Cell, limit_s: float) -> None:
    kernel.client.pump(lambda: lost.reply and lost.of("error"), limit_s, "an end of the cell")
    assert (lost.status, lost.error["ename"]) == ("error", "ReplyLost")


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_a_lost_reply_blocks_no_later_cell(launch: Launch, name: str, loss: str) -> None:
    kernel = launch(name)
    lost = _lose(kernel, loss)
    assert lost.reply is None, "planted: nobody else may see to it"
    assert kernel.run("6 * 7", 5).result == "42"
    if name != PLAIN:
        _is_told(kernel, lost, 1)
        assert "Kernel      running" in kernel.run("%bitfusion", 5).stream()
        assert kernel.run("6 * 7", 5).result == "42"


@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_a_reply_that_is_cut_off_takes_the_next_one_with_it_and_no_more(launch: Launch, name: str) -> None:
    kernel = launch(name)
    kernel.client.passes_over_damage = True
    lost = kernel.client.send(CUT_OFF)
    taken = kernel.client.send("6 * 7")
    kernel.client.pump(lambda: taken.idle, 10, "its end")
    kernel.client.settle(1.0)
    assert (lost.reply, taken.reply) == (None, None), "planted"
    assert kernel.run("6 * 7", 5).result == "42"
    if name != PLAIN:
        _is_told(kernel, lost, 1)
        _is_told(kernel, taken, 1)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_command_cell_right_behind_a_lost_reply_runs(launch: Launch, loss: str) -> None:
    kernel = launch(FIRST_CELL)
    lost = _lose(kernel, loss)
    assert "Kernel      running" in kernel.run("%bitfusion", 5).stream()
    _is_told(kernel, lost, 1)
    assert kernel.run("6 * 7", 5).result == "42"


def test_a_reply_that_cannot_be_sent_blocks_nothing(launch: Launch) -> None:
    kernel = launch(FIRST_CELL)
    kernel.run(NO_JSON)
    lost = kernel.client.send("1")
    kernel.client.settle(1.0)
    assert "Kernel      running" in kernel.run("%bitfusion", 5).stream()
    assert lost.reply is not None
    assert kernel.run("6 * 7", 5).result == "42"


@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_a_cell_that_replaces_the_kernels_program_blocks_no_later_one(launch: Launch, name: str) -> None:
    kernel = launch(name)
    kernel.run("kept = 1")
    lost = kernel.client.send(ANEW)
    if name == PLAIN:
        # Nothing tells when it is there again, nor when clients hear what it publishes.
        wait_until(lambda: kernel.run("6 * 7", 2).result, "it answers", 40, errors=(AssertionError,))
    else:
        _is_told(kernel, lost, 20)
    assert kernel.run("6 * 7", 10).result == "42"
    assert kernel.run("kept", 5).error["ename"] == "NameError"
    if name != PLAIN:
        assert "Kernel      running" in kernel.run("%bitfusion", 5).stream()
        kernel.restart()
        assert kernel.run("6 * 7").result == "42"


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_cell_that_runs_is_told_of_the_kernels_death_and_not_one_that_is_over(
    launch: Launch, loss: str
) -> None:
    kernel = launch(FIRST_CELL)
    lost = _lose(kernel, loss)
    dies = kernel.client.send("import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)")
    kernel.client.pump(lambda: dies.of("error"), 10, "the death")
    assert dies.error["ename"] == "KernelDied"
    assert lost.error["ename"] == "ReplyLost"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "way", "number"),
    [
        (PLAIN, "interrupt_kernel", 120),
        (FIRST_CELL, "interrupt_kernel", 120),
        # Not plain: once one of so many has ended it, the next ones end it each time while it starts.
        pytest.param(FIRST_CELL, "button", 600, marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("kernelspecs", "pool")
def test_short_cells_under_interrupts_never_block_the_kernel(
    tmp_path: Path, name: str, way: str, number: int
) -> None:
    with WAYS[way](name, tmp_path / name) as notebook:
        assert isinstance(notebook, Notebook)
        client, cells = notebook.client, []
        client.passes_over_damage = True
        client.run("import time")
        for count in range(number):
            cells.append(client.send("time.sleep(0.002)", stop_on_error=False))
            if count % 4 == 0:
                notebook.send_interrupt()
            client.settle(0.005)
        client.settle(2.5)
        assert client.run("6 * 7", 10).result == "42"
        if name != PLAIN:
            assert "Kernel      running" in client.run("%bitfusion", 5).stream()
            client.settle(0.5)
            assert [cell for cell in cells if cell.reply is None] == [], "each cell has ended in some way"
    ends = [cell.error["ename"] if cell.of("error") else "" for cell in cells]
    lost = ends.count("ReplyLost") + sum(cell.reply is None for cell in cells)
    hit = ends.count("KeyboardInterrupt")
    print(f"{name}: {number} cells, {-(-number // 4)} by {way}: {hit} interrupted, {lost} replies lost")
