"""Started as process 1: kernels end in each of the ways named on the command line; who stays a zombie?

    python process_1.py FOLDER NAME…

prints a JSON object: for each name the processes, by role, that nobody has reaped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.jupyter.cells import running_cell, waiting_cell
from tests.jupyter.chain import chain
from tests.jupyter.conftest import FIRST_CELL, START
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.waiting import wait_until


def shut_down_unused(pool: Pool) -> None:
    kernel = LiveKernel(FIRST_CELL)
    kernel.connect()
    kernel.stop()


def shut_down(pool: Pool) -> None:
    kernel = LiveKernel(FIRST_CELL)
    assert kernel.run("print(1)").stream() == "1\n"
    kernel.stop()


def restarted(pool: Pool) -> None:
    kernel = LiveKernel(START)
    kernel.run("print(1)")
    kernel.restart()
    kernel.run("print(1)")
    kernel.stop()


def interrupted(pool: Pool) -> None:
    kernel = LiveKernel(FIRST_CELL)
    cell = running_cell(kernel.client)
    kernel.interrupt()
    kernel.client.finish(cell, 10)
    kernel.stop()


def interrupted_while_it_waits(pool: Pool) -> None:
    holder = LiveKernel(FIRST_CELL)
    holder.run("print(1)")
    kernel = LiveKernel(FIRST_CELL)
    cell = waiting_cell(kernel.client)
    kernel.interrupt()
    kernel.client.finish(cell, 10)
    kernel.stop()
    holder.stop()


def _killed(role: str, name: str = FIRST_CELL) -> Callable[[Pool], None]:
    def scenario(pool: Pool) -> None:
        kernel = LiveKernel(name)
        running_cell(kernel.client)
        os.kill(chain(pool, os.getpid())[role].pid, signal.SIGKILL)
        kernel.wait_for_end(5)
        kernel.stop()

    return scenario


SCENARIOS: dict[str, Callable[[Pool], None]] = {
    "shut down before its first cell": shut_down_unused,
    "shut down": shut_down,
    "restarted": restarted,
    "interrupted": interrupted,
    "interrupted while it waits": interrupted_while_it_waits,
    **{f"{role} killed": _killed(role) for role in ("kernel", "launcher", "wrapper", "supervisor", "proxy")},
}


def _states() -> dict[int, tuple[str, str]]:
    """Name and state of every process but this one, by pid."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                name, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
            except OSError:
                continue
            found[int(entry)] = (name.partition("(")[2], rest.split()[0])
    return found


def main(folder: str, *names: str) -> None:
    """Play the scenarios one after another."""
    pool = Pool(Path(folder) / "pool")
    pool.write(gpus=1)
    os.environ.update(pool.environment)
    report = {}
    known: set[int] = set()
    for name in names:
        SCENARIOS[name](pool)
        wait_until(
            lambda: all(state == "Z" for _, state in _states().values()),
            lambda: f"the end of {_states()}",
            10,
        )
        zombies = _states()
        report[name] = sorted(what for pid, (what, _) in zombies.items() if pid not in known)
        known |= set(zombies)
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
