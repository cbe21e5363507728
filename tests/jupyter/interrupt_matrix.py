"""Code of every kind × every way to interrupt it, plain ipykernel beside ours.

A round is a test (`test_interrupts.py`); `python -m tests.jupyter.interrupt_matrix --rounds 20 --busy 2` runs
many beside busy loops and prints a table.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from tests.jupyter.client import Cell, Client
from tests.jupyter.conftest import FIRST_CELL, PLAIN, bitfusion_kernel_command
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Server
from tests.jupyter.live_kernel import LiveKernel
from tests.jupyter.terminal import CTRL_C, Console
from tests.support.waiting import wait_until

CODE = {
    "Python loop": "while True: pass",
    "regex": "import re; re.match(r'(a|a)*b', 'a' * 34 + 'c')",
    "big integers": "x = 7 ** (2 * 10 ** 7); x * x",
    "numpy": "import numpy; a = numpy.ones((1500, 1500))\nwhile True: a @ a",
    "time.sleep": "import time; time.sleep(60)",
    "subprocess": "import subprocess; subprocess.run(['sleep', '60'])",
    "!sleep": "!sleep 60",
    "input()": "input()",
    "await": "import asyncio; await asyncio.sleep(60)",
    "thread join": (
        "import threading; t = threading.Thread(target=__import__('time').sleep, args=(9,), daemon=True)\n"
        "t.start(); t.join()"
    ),
    "C code that looks for signals": (
        "import ctypes; look = ctypes.pythonapi.PyErr_CheckSignals; look.restype = ctypes.c_int\n"
        "while True: look()"
    ),
}
"""What runs when the interrupt comes; each would run for many seconds."""

RUNS_S = 0.5
"""Seconds from its begin, at the least."""

WAKE_S = 1.0
"""Seconds after which anything is sent: plain kernels that await take interrupts with the next message."""

LIMIT_S = 12.0
NAMES = {"!sleep": "", "await": "CancelledError"}
"""The names with which plain ipykernel ends interrupted cells; all others with KeyboardInterrupt."""

LATER_S = 1.0
"""Seconds after plain's slowest, from which on one of ours counts as missed."""
MEDIAN_S = 0.2
"""Seconds by which our median may be later than plain's."""


def telling_begin(code: str, mark: Path) -> str:
    """The code, which first makes a file.

    No message says reliably that it runs: code that holds the interpreter's lock keeps back those that the
    kernel has not sent yet, and `jupyter console` shows nothing before the reply of a cell that is not busy
    50 ms after it was sent.
    """
    if code.startswith("!"):
        return f"!touch {shlex.quote(str(mark))}; {code[1:]}"
    return f"open({str(mark)!r}, 'w').close()\n{code}"


class Interrupted(NamedTuple):
    """How one cell ended: seconds from the interrupt to its reply, and the name of its error."""

    seconds: float
    name: str


class Interruptible(Protocol):
    """Where a cell runs and is interrupted, again and again."""

    def begin(self, code: str) -> object:
        """Run a cell, and return once its code runs."""

    def interrupt(self) -> Interrupted:
        """Interrupt that cell, wait for its end, and run one more, which must not be hit."""


class Compared(NamedTuple):
    """The interrupts of one kind of code, in plain ipykernel and in ours."""

    kind: str
    plain: list[Interrupted]
    ours: list[Interrupted]

    def missed(self, of: Sequence[Interrupted], later_s: float = LATER_S) -> list[Interrupted]:
        """Those that ended otherwise than by the interrupt, or later than plain's slowest by so much."""
        latest = max(ended.seconds for ended in self.plain) + later_s
        name = NAMES.get(self.kind, "KeyboardInterrupt")
        return [ended for ended in of if ended.name != name or ended.seconds > latest]

    @property
    def medians(self) -> tuple[float, float]:
        """Seconds, of plain and of ours."""
        plain, ours = ([ended.seconds for ended in each] for each in (self.plain, self.ours))
        return statistics.median(plain), statistics.median(ours)

    @property
    def good(self) -> bool:
        """Whether none was missed, and ours are as fast as plain's."""
        return not self.missed(self.ours) and self.medians[1] <= self.medians[0] + MEDIAN_S


def compare(kind: str, plain: Interruptible, ours: Interruptible, rounds: int = 1) -> Compared:
    """Interrupt cells of a kind side by side; in each round the other one waits longer."""
    ended: dict[Interruptible, list[Interrupted]] = {plain: [], ours: []}
    for number in range(rounds):
        pair = [plain, ours][:: -1 if number % 2 else 1]
        for notebook in pair:
            notebook.begin(CODE[kind])
        time.sleep(RUNS_S)
        for notebook in pair:
            ended[notebook].append(notebook.interrupt())
    return Compared(kind, ended[plain], ended[ours])


class Notebook:
    """A kernel and a client, one way to interrupt it, and a folder for what its cells tell."""

    def __init__(self, client: Client, interrupt: Callable[[], object], folder: Path) -> None:
        self.client = client
        self.send_interrupt = interrupt
        self._mark = folder / "begun"
        self._cell: Cell

    def begin(self, code: str) -> None:
        self._mark.unlink(missing_ok=True)
        cell = self._cell = self.client.send(telling_begin(code, self._mark), allow_stdin=True)
        self.client.pump(self._mark.exists, LIMIT_S, "the begin of the cell", lambda: cell.seen)

    def interrupt(self) -> Interrupted:
        cell, begun = self._cell, time.monotonic()
        self.send_interrupt()
        woken = begun + WAKE_S
        self.client.pump(lambda: cell.done or time.monotonic() > woken, LIMIT_S, "its end")
        if not cell.done:
            self.client.ask("kernel_info_request")
            self.client.finish(cell, LIMIT_S)
        seconds = time.monotonic() - begun
        errors = cell.of("error")
        after = self.client.run("6 * 7", LIMIT_S)
        assert after.result == "42", f"the interrupt of {cell.code!r} hit the next cell: {after.kinds}"
        return Interrupted(seconds, errors[-1]["content"]["ename"] if errors else "")


class ConsoleNotebook:
    """The same typed into `jupyter console`."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._mark = folder / "begun"
        self._number = 0
        self._prompt = 1

    def begin(self, code: str) -> None:
        """As `Notebook.begin`; what is Python is typed as one `exec`."""
        self._number += 1
        self._mark.unlink(missing_ok=True)
        told = telling_begin(code, self._mark)
        self._console.run(told if code.startswith("!") else f"exec({told!r})")
        wait_until(self._mark.exists, lambda: f"the begin of {code!r}:\n{self._console.text}", LIMIT_S)

    def interrupt(self) -> Interrupted:
        begun = time.monotonic()
        self._console.type(CTRL_C)
        said = self._console.wait_for(self._next_prompt(), limit_s=LIMIT_S)
        seconds = time.monotonic() - begun
        self._console.run(f"print('after', {self._number} * 1000)")
        # a reply may overtake the output before it, which the console then shows at the next prompt
        after = f"after {self._number * 1000}"
        said += self._console.wait_for(after, self._next_prompt(), limit_s=LIMIT_S)
        return Interrupted(seconds, "KeyboardInterrupt" if "KeyboardInterrupt" in said else "")

    def _next_prompt(self) -> str:
        """What the console shows when the cell that was typed last has ended."""
        self._prompt += 1
        return f"In [{self._prompt}]: "


@contextmanager
def by_manager(name: str, folder: Path) -> Iterator[Notebook]:
    """`KernelManager.interrupt_kernel`, as notebook tools call it."""
    folder.mkdir(exist_ok=True)
    kernel = LiveKernel(name)
    try:
        yield Notebook(kernel.client, kernel.interrupt, folder)
    finally:
        kernel.stop()


@contextmanager
def by_signal(name: str, folder: Path) -> Iterator[Notebook]:
    """SIGINT to the process that Jupyter has started."""
    folder.mkdir(exist_ok=True)
    kernel = LiveKernel(name)
    try:
        yield Notebook(kernel.client, lambda: os.kill(kernel.pid, signal.SIGINT), folder)
    finally:
        kernel.stop()


@contextmanager
def by_button(name: str, folder: Path) -> Iterator[Notebook]:
    """JupyterLab's button: a request to Jupyter Server."""
    folder.mkdir(exist_ok=True)
    server = Server(folder)
    try:
        kernel = server.start_kernel(name)
        client = server.connect(kernel)
        yield Notebook(client, lambda: server.ask("POST", f"/api/kernels/{kernel}/interrupt"), folder)
        server.delete(kernel, client)
    finally:
        server.stop()


@contextmanager
def by_ctrl_c(name: str, folder: Path) -> Iterator[ConsoleNotebook]:
    """Ctrl-C in `jupyter console`."""
    folder.mkdir(exist_ok=True)
    console = Console(name, folder)
    try:
        console.wait_for("In [1]: ", limit_s=60)
        yield ConsoleNotebook(console, folder)
    finally:
        console.close()


Way = Callable[[str, Path], AbstractContextManager[Interruptible]]
WAYS: dict[str, Way] = {
    "button": by_button,
    "interrupt_kernel": by_manager,
    "Ctrl-C": by_ctrl_c,
    "SIGINT": by_signal,
}
NOT_TYPED = {"input()", "await"}
"""One asks the terminal itself; in the other a plain kernel takes the interrupt with its next message."""


def kinds_for(way: str) -> list[str]:
    """The kinds of code that can be interrupted so."""
    return [kind for kind in CODE if way != "Ctrl-C" or kind not in NOT_TYPED]


def main() -> int:
    """Many rounds; 1 if any was missed, or their median is later than plain's by more than `MEDIAN_S`."""
    parser = argparse.ArgumentParser(prog="python -m tests.jupyter.interrupt_matrix", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        pool = Pool(folder / "pool")
        pool.write(gpus=8)
        for variable, value in pool.environment.items():
            patch.setenv(variable, value)
        install = [*bitfusion_kernel_command(), "install", "--prefix", str(folder), "--name", FIRST_CELL]
        subprocess.run(install, check=True, capture_output=True)
        patch.setenv("JUPYTER_PATH", str(folder / "share" / "jupyter"))
        for _ in range(options.busy):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        return _print_table(folder, options.rounds)


def _print_table(folder: Path, rounds: int) -> int:
    good = True
    print(
        f"{'way':18}{'code':32}{'plain':>8}{'ours':>8}{'worst':>8}{'worst':>8}  missed of {rounds}",
        flush=True,
    )
    for way, make in WAYS.items():
        with make(PLAIN, folder / f"{way} plain") as plain, make(FIRST_CELL, folder / f"{way} ours") as ours:
            for kind in kinds_for(way):
                found = compare(kind, plain, ours, rounds)
                good &= found.good
                worst = (max(ended.seconds for ended in each) for each in (found.plain, found.ours))
                told = "".join(f"{seconds:8.3f}" for seconds in (*found.medians, *worst))
                missed = [len(found.missed(each)) for each in (found.ours, found.plain)]
                print(f"{way:18}{kind:32}{told}  {missed[0]} (plain {missed[1]})", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
