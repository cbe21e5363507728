"""How fast the embedded pool is: ``python -m benchmarks.pool_acquire_release [--json]``.

Acquire and release, the overhead of `bitfusion run` before its program starts, a killed holder's GPUs in the
hands of the next one, and a queue of waiters. Each figure is a function of its own, in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import bitfusion_pool
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import WAITING, Holder
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.queue.queue_position import QueuePosition
from bitfusion_pool.ledger.waiting import REFRESH_S, pause, wait_for_turn

COMMAND = os.path.join(os.path.dirname(bitfusion_pool.__file__), "bin", "bitfusion")
HOLDER = Holder("benchmark", "benchmark")
REPETITIONS = 30
WAITERS = 1_000


def pool_environment(folder: str) -> dict[str, str]:
    """An environment with a pool of its own in `folder`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BITFUSION_")}
    return {**kept, "BITFUSION_POOL_DIR": f"{folder}/pool", "BITFUSION_PYTHON": sys.executable}


def _write_position(position: QueuePosition) -> None:
    position.text()  # as `bitfusion run` does; nobody reads it here


def library_cycle(environ: Mapping[str, str]) -> float:
    """Open the ledger, take a GPU, give it back: what a program pays that uses the ledger directly."""
    started = time.perf_counter()
    with Ledger(environ) as ledger:
        entry, lock = ledger.submit(GpuRequest(1, 0.5), HOLDER)
        lock.close()
        ledger.release(entry.entry_id)
    return time.perf_counter() - started


def run_before_program(environ: Mapping[str, str]) -> float:
    """From starting `bitfusion run` until its program has started, the program's own start-up taken off."""
    return _started([COMMAND, "run", "-n", "1", "-p", "0.5", "--"], environ) - _started([], environ)


def _started(prefix: list[str], environ: Mapping[str, str]) -> float:
    before = time.time()
    done = subprocess.run([*prefix, "date", "+%s.%N"], env=dict(environ), capture_output=True, check=True)
    return float(done.stdout) - before


def run_whole(environ: Mapping[str, str]) -> float:
    """All of `bitfusion run -n 1 -- true`."""
    started = time.perf_counter()
    words = [COMMAND, "run", "-n", "1", "--", "true"]
    subprocess.run(words, env=dict(environ), stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def killed_to_next(environ: Mapping[str, str]) -> float:
    """SIGKILL of a holder and its program until the next in the queue has the GPUs."""
    words = [COMMAND, "run", "-n", "2", "--", "sleep", "60"]
    holder = subprocess.Popen(words, env=dict(environ), stderr=subprocess.DEVNULL, start_new_session=True)
    with Ledger(environ) as ledger:
        while not ledger.entries():
            time.sleep(0.005)
        entry, lock = ledger.submit(GpuRequest(1), HOLDER)
        if entry.state != WAITING:
            raise RuntimeError("the holder does not hold the GPUs")
        killed = [0.0]

        def kill() -> None:
            killed[0] = time.perf_counter()
            os.killpg(holder.pid, signal.SIGKILL)

        timer = threading.Timer(0.25, kill)
        timer.start()
        wait_for_turn(ledger, entry, 20)
        passed = time.perf_counter() - killed[0]
        timer.join()
        holder.wait()
        ledger.release(entry.entry_id)
        lock.close()
    return passed


@dataclass(frozen=True)
class QueueFigures:
    """What a queue of waiters cost.

    Attributes:
        seconds: Until all were served, one after the other.
        busy: The share of a core that they used while they only waited.
        release: Seconds of CPU that one release cost all of them together, until the last had seen it.
        in_order: Whether they were served in the order they came.
    """

    seconds: float
    busy: float
    release: float
    in_order: bool


def queue_of_waiters(environ: Mapping[str, str], count: int = WAITERS) -> QueueFigures:
    """Let `count` waiters wait, serve the first and watch the others, then serve all of them."""
    queued: list[str] = []
    served: list[str] = []
    go_on = threading.Event()

    def wait(ready: threading.Event) -> None:
        with Ledger(environ) as own:
            entry, lock = own.submit(GpuRequest(2), HOLDER)
            queued.append(entry.entry_id)
            ready.set()
            wait_for_turn(own, entry, 600, _write_position)
            served.append(entry.entry_id)
            go_on.wait()
            own.release(entry.entry_id)
            lock.close()

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each of them has six files open
    with Ledger(environ) as ledger:
        entry, lock = ledger.submit(GpuRequest(2), HOLDER)
        threads = []
        for _ in range(count):
            ready = threading.Event()
            threads.append(threading.Thread(target=wait, args=(ready,)))
            threads[-1].start()
            ready.wait()
        all_have_looked = min(pause(count), REFRESH_S) + 1
        time.sleep(all_have_looked)  # they still refresh what they know
        busy = _cpu_of(all_have_looked, lambda: None) / all_have_looked

        def release() -> None:
            ledger.release(entry.entry_id)
            lock.close()

        cost = _cpu_of(all_have_looked, release) - busy * all_have_looked
        started = time.perf_counter()
        go_on.set()
        for thread in threads:
            thread.join()
        return QueueFigures(time.perf_counter() - started, busy, max(0.0, cost), served == queued)


def _cpu_of(seconds: float, act: Callable[[], None]) -> float:
    """Seconds of CPU that this process uses in the time from `act` on."""
    before = time.process_time()
    act()
    time.sleep(seconds)
    return time.process_time() - before


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool_acquire_release", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the figures for programs, in seconds")
    options = parser.parse_args()
    topics: dict[str, Callable[[Mapping[str, str]], float]] = {
        "acquire and release, library": library_cycle,
        "bitfusion run until its program starts": run_before_program,
        "bitfusion run -- true, all of it": run_whole,
        "killed holder until the next has the GPUs": killed_to_next,
    }
    with tempfile.TemporaryDirectory() as folder:
        environ = pool_environment(folder)
        library_cycle(environ)  # makes the ledger
        found: dict[str, list[float]] = {
            name: [measure(environ) for _ in range(REPETITIONS)] for name, measure in topics.items()
        }
        found_queue = queue_of_waiters(environ)
    figures = {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name, values in found.items()
    }
    if options.json:
        queue = {"waiters": WAITERS, **asdict(found_queue)}
        print(json.dumps({"figures": figures, "queue": queue}, indent=2))
        return 0
    for name, figure in figures.items():
        median, least, most = (f"{figure[key] * 1000:8.2f}" for key in ("median", "min", "max"))
        print(f"{name:<44}{median} ms   ({least.strip()} to {most.strip()})")
    order = "strictly in order" if found_queue.in_order else "NOT in order"
    waiting = f"(waiting: {found_queue.busy:.1%} of a core; a release: {found_queue.release:.2f} s of CPU)"
    print(f"{f'{WAITERS} waiters served, {order}':<44}{found_queue.seconds:8.2f} s    {waiting}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
