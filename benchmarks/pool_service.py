"""A pool behind a service on this machine, beside a user's own ledger: what the socket between them costs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMost, AtMostMore, Row, Samples, interleave
from benchmarks.pool_acquire_release import HOLDER, run_whole
from benchmarks.workplace import Workplace
from bitfusion_client.request import GpuRequest
from bitfusion_pool.client.pool_choice import open_pool
from bitfusion_pool.client.service_pool import ServicePool
from bitfusion_pool.ledger.entries import PROCESS

TOPIC = "pool_service"
START_S = 20.0
MOST_CLIENTS = 200
WHOLE = GpuRequest(2)  # all GPUs of the default pool, so that one after the other is served


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for acquire and release, for the command around it, and for clients that are served in order."""
    alone = {"BITFUSION_POOL_DIR": str(workplace.folder / "pool-own"), "BITFUSION_PYTHON": sys.executable}
    own = {**workplace.environ, **alone}
    with running_service() as socket:
        served = {**own, "BITFUSION_POOL": socket}
        rows = []
        for what, measure in (
            ("acquire and release at a service's socket; plain: own ledger", cycle),
            ("bitfusion run -n 1 -- true with a service; plain: own ledger", run_whole),
        ):
            measure(own)  # makes the ledger
            samples = interleave({"ours": served, "plain": own}, effort.leases, measure)
            goal = AtMostMore(5 * MILLISECOND)
            rows.append(Row(TOPIC, what, "ms", samples["ours"], samples["plain"], goal))
        count = min(MOST_CLIENTS, effort.waiters)
        seconds, in_order = clients_in_order(served, count)
    order = "strictly in order" if in_order else "NOT in order"
    rows.append(
        Row(
            TOPIC,
            f"{count} clients of a service served one after the other",
            "ms",
            Samples((seconds / count,)),
            goal=AtMost(20 * MILLISECOND, "ms"),
            note=f"each; {order}",
            whole=in_order,
        )
    )
    return rows


def cycle(environ: Mapping[str, str]) -> float:
    """Open the pool as the `bitfusion` command does, take half a GPU, give it back."""
    started = time.perf_counter()
    with open_pool(environ) as pool:
        pool.release(pool.take(GpuRequest(1, 0.5), HOLDER, PROCESS, "", _ignore))
    return time.perf_counter() - started


def clients_in_order(environ: Mapping[str, str], count: int) -> tuple[float, bool]:
    """Seconds until so many waiting clients were served, and whether in the order in which they came."""
    served: list[int] = []

    def wait(number: int, ready: threading.Event) -> None:
        with open_pool(environ) as pool:
            lease = pool.take(WHOLE, HOLDER, PROCESS, "", lambda _: ready.set())
            served.append(number)
            pool.release(lease)

    with open_pool(environ) as pool:
        first = pool.take(WHOLE, HOLDER, PROCESS, "", _ignore)
        threads = []
        for number in range(count):
            ready = threading.Event()
            threads.append(threading.Thread(target=wait, args=(number, ready)))
            threads[-1].start()
            ready.wait()
        started = time.perf_counter()
        pool.release(first)
        for thread in threads:
            thread.join()
    return time.perf_counter() - started, served == list(range(count))


@contextlib.contextmanager
def running_service() -> Iterator[str]:
    """A service of its own, without limits on one user; the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="bf-") as folder:
        socket = f"{folder}/socket"
        words = ["--dir", f"{folder}/pool", "serve", "--socket", socket, "--waiting-per-user", "0"]
        words += ["--gpus", "simulated"]  # also on a machine that has real ones
        process = subprocess.Popen(
            [sys.executable, "-m", "bitfusion_pool.admin.cli", *words, "--log-level", "error"],
            cwd=Path(__file__).parents[1],
        )
        try:
            _wait_until_it_answers(socket, process)
            yield socket
        finally:
            process.terminate()
            process.wait()


def _wait_until_it_answers(socket: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while not Path(socket).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the service does not start")
        time.sleep(0.02)
    ServicePool(socket, {}).close()


def _ignore(position: str) -> None:
    """Nobody reads it here."""
