"""What people, programs and accidents do to a notebook. Each is one function; the weights say how often."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from tests.jupyter.chain import role_of
from tests.jupyter.soak.notebooks import ANSWER_S, NotAnswered, Notebook
from tests.support.machine import scaled

LONG = "import time\nfor _ in range(600):\n    time.sleep(0.1)"
SIZES = ("-n 1", "-n 2", "-p 0.5", "-p 0.25", "-n 1 -m 4000", "-n 2 -p 0.5")
KEPT = "x"
ALONE_S = 7.0
"""Seconds in which a chain that lost a process has ended, where nobody restarts it."""


def run(notebook: Notebook) -> None:
    """A short cell, which takes a GPU if there is none."""
    cell = notebook.send(f"{KEPT} = globals().get('{KEPT}', 0) + 1; print({KEPT})")
    notebook.settle(cell, notebook.random.uniform(2, 20))


def run_long_and_interrupt(notebook: Notebook) -> None:
    """The interrupt button, while it waits or runs."""
    notebook.settle(notebook.send(LONG), notebook.random.uniform(0, 4))


def run_all(notebook: Notebook) -> None:
    """Many cells in one go."""
    cells = [notebook.send(code) for code in ("1", "%bitfusion", "print(2)", "raise ValueError", "3")]
    for cell in cells:
        notebook.settle(cell, notebook.random.uniform(2, 15))


def look(notebook: Notebook) -> None:
    """State and pool, which take no GPU."""
    for line in ("%bitfusion", "%bitfusion pool", "%bitfusion log"):
        notebook.settle(notebook.send(line), ANSWER_S)


def release(notebook: Notebook) -> None:
    """By a word, half of the time while a cell runs behind it."""
    cells = [notebook.send("%bitfusion release -y")]
    if notebook.random.random() < 0.5:
        cells.append(notebook.send("print('begins anew')"))
    for cell in cells:
        notebook.settle(cell, notebook.random.uniform(2, 15))


def resize(notebook: Notebook) -> None:
    """Another size now, waited for or not."""
    size = notebook.random.choice(SIZES)
    notebook.settle(notebook.send(f"%bitfusion request {size} --now -y"), notebook.random.uniform(0.2, 35))


def choose(notebook: Notebook) -> None:
    """Another size for later."""
    size = notebook.random.choice((*SIZES, "--reset"))
    notebook.settle(notebook.send(f"%bitfusion request {size}"), ANSWER_S)


def cancel(notebook: Notebook) -> None:
    """By a word beside a cell that may wait."""
    cell = notebook.send("print('mine')")
    notebook.connected.settle(notebook.random.uniform(0.5, 3))
    notebook.settle(notebook.send("%bitfusion cancel"), ANSWER_S)
    notebook.settle(cell, ANSWER_S)


def restart(notebook: Notebook) -> None:
    """The restart button, half of the time while a cell runs or waits."""
    if notebook.random.random() < 0.5:
        notebook.send(LONG)
        notebook.connected.settle(notebook.random.uniform(0, 2))
    notebook.restart(now=False)


def restart_now(notebook: Notebook) -> None:
    """Of a kernel that does not answer."""
    notebook.send(LONG)
    notebook.connected.settle(notebook.random.uniform(0, 1))
    notebook.restart(now=True)


def reload(notebook: Notebook) -> None:
    """Of the page, while a cell runs or waits; the cell is interrupted then, as nobody sees it."""
    notebook.send(LONG)
    notebook.connected.settle(notebook.random.uniform(0, 1))
    notebook.reconnect()
    notebook.interrupt()
    notebook.connected.channels.wait_for_ready(timeout=scaled(ANSWER_S))
    run(notebook)


def kill(notebook: Notebook) -> None:
    """SIGKILL of one process of the chain, while a cell runs or waits or none does."""
    if notebook.random.random() < 0.7:
        line = notebook.random.choice((LONG, "%bitfusion release -y", "%bitfusion request -n 2 --now -y"))
        notebook.send(line)
        notebook.connected.settle(notebook.random.uniform(0, 2))
    found = notebook.processes()
    if found:
        victim = notebook.random.choice(found)
        notebook.note(
            f"SIGKILL of the {role_of(victim.command)} {victim.pid} of {[each.pid for each in found]}"
        )
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
    notebook.recover()
    notebook.interrupt()
    run(notebook)


def abandon(notebook: Notebook) -> None:
    """The kernel's proxy or supervisor is killed, and nobody restarts it: the others end, and clean up."""
    run(notebook)
    alike = [process for process in notebook.processes() if role_of(process.command) == "proxy"]
    if alike:
        victim = notebook.random.choice(alike)
        notebook.note(f"SIGKILL of {victim.pid}, and nobody restarts it")
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        notebook.connected.settle(ALONE_S)
    notebook.shut_down(now=True)
    notebook.start()


def start_anew(notebook: Notebook) -> None:
    """Shut down, and opened again."""
    notebook.shut_down()
    time.sleep(notebook.random.uniform(0, 2))
    notebook.start()


def pause(notebook: Notebook) -> None:
    """Somebody thinks."""
    notebook.connected.settle(notebook.random.uniform(0, 3))


def sit_still(notebook: Notebook) -> None:
    """Nobody does anything for so long that a kernel which gives back an idle GPU has done so."""
    if not notebook.gives_back_idle:
        pause(notebook)
        return
    run(notebook)
    notebook.connected.settle(60 + scaled(5))
    roles = {role_of(process.command) for process in notebook.processes()}
    assert "kernel" not in roles, f"after a minute without work there are {roles}"


WEIGHTS: dict[Callable[[Notebook], None], int] = {
    run: 20,
    run_long_and_interrupt: 8,
    run_all: 5,
    look: 4,
    release: 10,
    resize: 10,
    choose: 4,
    cancel: 5,
    restart: 8,
    restart_now: 4,
    reload: 4,
    kill: 10,
    abandon: 5,
    start_anew: 6,
    pause: 5,
    sit_still: 2,
}


def next_action(notebook: Notebook) -> Callable[[Notebook], None]:
    """One of them, by their weights."""
    return notebook.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


__all__ = ["WEIGHTS", "NotAnswered", "next_action"]
