"""A pool behind a service, beside a user's own ledger: what a socket costs, and what TLS."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMost, AtMostMore, Row, Samples, interleave
from benchmarks.pool_acquire_release import HOLDER, run_whole
from benchmarks.workplace import Workplace
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.network_files import USER_FOLDER
from bitfusion_pool.client.connections.service_errors import ServiceAway
from bitfusion_pool.client.pools.life_by_lock import LifeByLock
from bitfusion_pool.client.pools.pool import Pool
from bitfusion_pool.client.pools.pool_choice import NETWORK, VARIABLE, open_pool
from bitfusion_pool.ledger.entries import PROCESS
from tests.support.ports import free_port, return_port

TOPIC = "pool_service"
ROOT = Path(__file__).parents[1]
START_S = 20.0
HOST = "127.0.0.1"
OWN, SOCKET, TLS = "own", "socket", "TLS"
GOALS = {SOCKET: AtMostMore(5 * MILLISECOND), TLS: AtMostMore(10 * MILLISECOND)}  # above the own ledger
MOST_CLIENTS = 200
WHOLE = GpuRequest(2)  # all GPUs of the default pool, so that one after the other is served


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for acquire and release, for the command around it, and for clients that are served in order."""
    alone = {"BITFUSION_POOL_DIR": str(workplace.folder / "pool-own"), "BITFUSION_PYTHON": sys.executable}
    own = {**workplace.environ, **alone}
    with running_service() as way_to:
        environs = {OWN: own, **{name: {**own, **way} for name, way in way_to.items()}}
        with contextlib.ExitStack() as stack:
            pools = {name: stack.enter_context(open_pool(environ)) for name, environ in environs.items()}
            for pool in pools.values():
                cycle(pool)  # makes the ledger
            samples = interleave(pools, effort.leases, cycle)
        rows = _beside_own("acquire and release, connected: {}; plain: own ledger, open", samples)
        samples = interleave(environs, effort.leases, connect_and_cycle)
        rows += _beside_own("connect, acquire, release: {}; plain: own ledger", samples)
        on_machine = {name: environs[name] for name in (OWN, SOCKET)}
        samples = interleave(on_machine, effort.leases, run_whole)
        rows += _beside_own("bitfusion run -n 1 -- true: {}; plain: own ledger", samples)
        count = min(MOST_CLIENTS, effort.waiters)
        rows += [_queue_row(name, environs[name], count) for name in way_to]
    return rows


def cycle(pool: Pool) -> float:
    """Take half a GPU, and give it back."""
    started = time.perf_counter()
    pool.release(pool.take(GpuRequest(1, 0.5), HOLDER, PROCESS, "", _ignore))
    return time.perf_counter() - started


def connect_and_cycle(environ: Mapping[str, str]) -> float:
    """The same, with opening the pool as the `bitfusion` command does."""
    started = time.perf_counter()
    with open_pool(environ) as pool:
        cycle(pool)
    return time.perf_counter() - started


def clients_in_order(environ: Mapping[str, str], count: int) -> tuple[float, bool]:
    """Seconds until so many waiting clients were served, and whether in the order in which they came."""
    served: list[int] = []

    def wait(number: int, in_queue: threading.Event) -> None:
        try:
            with open_pool(environ) as pool:
                lease = pool.take(WHOLE, HOLDER, PROCESS, "", lambda *_: in_queue.set())
                served.append(number)
                pool.release(lease)
        finally:
            in_queue.set()  # a client that failed keeps nobody waiting; its error is raised below

    with ThreadPoolExecutor(count) as executor, open_pool(environ) as pool:
        first = pool.take(WHOLE, HOLDER, PROCESS, "", _ignore)
        clients = []
        for number in range(count):
            in_queue = threading.Event()
            clients.append(executor.submit(wait, number, in_queue))
            in_queue.wait()
        started = time.perf_counter()
        pool.release(first)
        for client in clients:
            client.result()
        seconds = time.perf_counter() - started
    return seconds, served == list(range(count))


@contextlib.contextmanager
def running_service() -> Iterator[dict[str, dict[str, str]]]:
    """A service of its own, without limits on one user.

    Yields:
        For SOCKET and TLS the variables with which a client reaches it so.
    """
    with tempfile.TemporaryDirectory(prefix="bf-") as folder, _port() as port:
        socket, home, server = f"{folder}/socket", f"{folder}/home", f"{HOST}:{port}"
        Path(home).mkdir(mode=0o700)
        files = ["--files", f"{home}/{USER_FOLDER}", "--server", server]
        for words in (["certificate", "create", "--host", HOST], ["token", "create", "benchmark", *files]):
            subprocess.run(_admin(folder, *words), stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
        options = ["--socket", socket, "--listen", server, "--waiting-per-user", "0"]
        options += ["--gpus", "simulated"]  # also on a machine that has real ones
        process = subprocess.Popen(_admin(folder, "serve", *options, "--log-level", "error"), cwd=ROOT)
        try:
            wait_until_it_answers(socket, process)
            yield {SOCKET: {VARIABLE: socket}, TLS: {VARIABLE: f"{NETWORK}{server}", "HOME": home}}
        finally:
            process.terminate()
            process.wait()


def wait_until_it_answers(socket: str, process: subprocess.Popen[bytes], limit_s: float = START_S) -> None:
    """Until the service takes a client at its socket, at which it listens last.

    That the file is there says nothing: until the service listens at it, it refuses connections.

    Raises:
        RuntimeError: It has ended, or has not answered in time.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            LifeByLock(socket).connection.close()
            return
        except ServiceAway as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service does not start: {error.answered}") from None
        time.sleep(0.02)


def _admin(folder: str, *words: str) -> list[str]:
    """The administrator's command for the pool in this folder."""
    return [sys.executable, "-m", "bitfusion_pool.admin.cli", "--dir", f"{folder}/pool", *words]


@contextlib.contextmanager
def _port() -> Iterator[int]:
    port = free_port()
    try:
        yield port
    finally:
        return_port(port)


def _beside_own(what: str, samples: Mapping[str, Samples]) -> list[Row]:
    """A row for each of the others; `what` has a place for its name."""
    own = samples[OWN]
    return [
        Row(TOPIC, what.format(name), "ms", found, own, GOALS[name], f"{found.value / own.value:.2f} x own")
        for name, found in samples.items()
        if name != OWN
    ]


def _queue_row(name: str, environ: Mapping[str, str], count: int) -> Row:
    seconds, in_order = clients_in_order(environ, count)
    return Row(
        TOPIC,
        f"{count} clients served one after the other: {name}",
        "ms",
        Samples((seconds / count,)),
        goal=AtMost(20 * MILLISECOND, "ms"),
        note=f"each; {'strictly in order' if in_order else 'NOT in order'}",
        whole=in_order,
    )


def _ignore(*_: str) -> None:
    """Nobody reads it here."""
