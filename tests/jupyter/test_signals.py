"""Signals that somebody sends to a kernel: they do in ours what they do in plain ipykernel."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.jupyter.conftest import FIRST_CELL, PLAIN, Launch
from tests.jupyter.live_kernel import LiveKernel
from tests.support.waiting import wait_until

HANDLE = """
import signal
signal.signal({number}, lambda *_: open({path!r}, "w").close())
"""
ENDS_ITSELF = """
import os, signal, sys
def end(*_):
    open({path!r}, "w").close()
    sys.exit(0)
signal.signal({number}, end)
"""
HANDLED = (
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGALRM, signal.SIGTSTP, signal.SIGCONT),
    *(signal.SIGABRT, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU, signal.SIGRTMIN, signal.SIGRTMAX),
)


def _lives(kernel: LiveKernel) -> None:
    assert kernel.run("6 * 7", 10).result == "42"
    assert kernel.manager.is_alive()


@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_a_handler_of_a_cell_runs(launch: Launch, name: str, tmp_path: Path) -> None:
    kernel = launch(name)
    for number in HANDLED:
        path = tmp_path / f"got-{number}"
        kernel.run(HANDLE.format(number=int(number), path=str(path)))
        kernel.manager.signal_kernel(number)
        wait_until(path.exists, f"the handler of {number}", 5)
    _lives(kernel)


@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_what_stops_or_goes_unnoticed_by_default_changes_nothing(launch: Launch, name: str) -> None:
    """A kernel has a session of its own, in which a terminal's SIGTSTP means nothing."""
    kernel = launch(name)
    kernel.run("1")
    for number in (signal.SIGWINCH, signal.SIGURG, signal.SIGCONT, signal.SIGTSTP):
        kernel.manager.signal_kernel(number)
        kernel.client.settle(0.2)
        _lives(kernel)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGQUIT, signal.SIGALRM])
def test_without_a_kernel_they_are_ignored(launch: Launch, number: int) -> None:
    kernel = launch(FIRST_CELL)
    kernel.connect()
    os.kill(kernel.pid, number)
    _lives(kernel)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGQUIT])
@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_without_a_handler_they_end_the_kernel(launch: Launch, name: str, number: int) -> None:
    kernel = launch(name)
    kernel.run("1")
    cell = kernel.client.send("import time; time.sleep(60)")
    kernel.client.pump(lambda: cell.of("execute_input"), 10, "the begin of the cell")
    os.kill(kernel.pid, number)
    kernel.wait_for_end(10)
    if name != PLAIN:
        kernel.client.pump(lambda: cell.of("error"), 5, "the reason")
        assert f"was killed by {signal.Signals(number).name}" in cell.error_text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_the_handler_of_a_signal_to_end_runs_to_its_end(
    launch: Launch, name: str, number: int, tmp_path: Path
) -> None:
    kernel, path = launch(name), tmp_path / "saved"
    kernel.run(ENDS_ITSELF.format(number=int(number), path=str(path)))
    kernel.manager.signal_kernel(number)
    wait_until(path.exists, "the handler", 5)
    if name == PLAIN:
        kernel.stop(now=True)  # there a handler's SystemExit ends its cell only
    else:
        kernel.wait_for_end(10)


def test_jupyters_own_end_of_a_kernel_that_does_not_answer_lets_the_handler_run(
    launch: Launch, tmp_path: Path
) -> None:
    kernel, path, begun = launch(FIRST_CELL), tmp_path / "saved", tmp_path / "begun"
    kernel.run(HANDLE.format(number=int(signal.SIGTERM), path=str(path)))
    kernel.client.send(
        "import signal, time; signal.signal(2, signal.SIG_IGN); end = time.monotonic() + 60\n"
        f"open({str(begun)!r}, 'w').close()\nwhile time.monotonic() < end: pass"
    )
    kernel.client.pump(begun.exists, 10, "the begin of the cell")
    kernel.manager.shutdown_kernel()
    assert path.exists()
