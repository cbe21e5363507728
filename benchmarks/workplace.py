"""Throw-away kernelspecs, a private pool, and the kernels started from them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from benchmarks import processes
from benchmarks.kernel_client import FAST_RECONNECT_MS, KernelClient

PLAIN, FIRST_CELL, START = "plain", "first_cell", "start"
SPEC_OF = {PLAIN: "bench-plain", FIRST_CELL: "bench-bitfusion", START: "bench-bitfusion"}
LEFT_OVER_SECONDS = 10.0

POOL_TOML = """\
# Simulated devices also where the machine has real ones: the benchmark measures the chain, not a driver.
[[servers]]
name = "bench"
address = "127.0.0.1"
devices = [{ name = "Simulated Tesla V100-PCIE-16GB", memory_mib = 16160, count = 2 }]
"""


class LeftOvers(RuntimeError):
    """Processes of a kernel outlived its shutdown."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A running kernel: what the manager knows about it, and a raw client on demand."""

    manager: KernelManager
    mark: str
    started: float
    """``perf_counter`` just before the manager was asked to start it."""

    @property
    def pid(self) -> int:
        """The process that Jupyter started: the proxy, or the plain kernel itself."""
        pid = getattr(self.manager.provisioner, "pid", None)
        if not isinstance(pid, int):
            raise RuntimeError("the kernel has no process")
        return pid

    def client(self, *, reconnect_ms: int = FAST_RECONNECT_MS, reads: bool = True) -> KernelClient:
        """A new raw client; the caller closes it."""
        context: zmq.Context[zmq.Socket[bytes]] = self.manager.context
        connection = self.manager.get_connection_info()
        return KernelClient(connection, context, reconnect_ms=reconnect_ms, reads=reads)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to start a kernel: ``plain``, or ours with ``acquire`` set to the variant's name."""

    name: str
    spec: str
    workplace: Workplace
    environ: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """Start a kernel, and shut it down when the block ends.

        Raises LeftOvers when one of its processes is still there 10 s after the shutdown.
        """
        mark = uuid.uuid4().hex
        manager = KernelManager(
            kernel_name=self.spec,
            kernel_spec_manager=self.workplace.specs,
            connection_file=str(self.workplace.folder / "run" / f"{mark[:8]}.json"),
        )
        environ = {**self.workplace.environ, **self.environ, processes.MARK: mark}
        log = (self.workplace.folder / "kernel.log").open("ab")
        try:
            started = time.perf_counter()
            manager.start_kernel(
                env=environ, cwd=str(self.workplace.folder), stdout=subprocess.DEVNULL, stderr=log
            )
            try:
                yield Kernel(manager, mark, started)
            finally:
                manager.shutdown_kernel(now=False)
                manager.cleanup_resources()
                _expect_nothing_left(mark, self)
        finally:
            log.close()


@dataclass(frozen=True, slots=True)
class Workplace:
    """A temporary folder with both kernelspecs, a pool of its own and a home of its own."""

    folder: Path
    specs: KernelSpecManager
    environ: Mapping[str, str]
    control: bool

    @classmethod
    @contextmanager
    def open(cls, *, control: bool = False) -> Iterator[Workplace]:
        """Make the folder, install the kernelspecs, and remove it all when the block ends.

        ``control`` measures plain ipykernel in the place of ours: what differs then is the machine's noise.
        """
        # Socket paths have at most 107 bytes: keep the folder's name short.
        folder = Path(tempfile.mkdtemp(prefix="bfb-"))
        try:
            environ = _private_environ(folder)
            install_plain(folder)
            if not control:
                install_ours(folder, environ)
            specs = KernelSpecManager(kernel_dirs=[str(folder / "prefix" / "share" / "jupyter" / "kernels")])
            specs.ensure_native_kernel = False
            yield cls(folder, specs, environ, control)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def variant(self, name: str) -> Variant:
        """``plain``, ``first_cell`` or ``start``."""
        spec = SPEC_OF[PLAIN] if self.control else SPEC_OF[name]
        environ = {} if name == PLAIN else {"BITFUSION_ACQUIRE": name}
        return Variant(name, spec, self, environ)

    def variants(self, *names: str) -> dict[str, Variant]:
        """Several variants by name, plain first."""
        return {name: self.variant(name) for name in (PLAIN, *names)}

    def log_tail(self) -> str:
        """The last lines that kernels wrote to stderr."""
        log = self.folder / "kernel.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def install_plain(folder: Path) -> None:
    """Install ipykernel's own kernelspec below ``folder``/prefix."""
    from ipykernel.kernelspec import install

    install(prefix=str(folder / "prefix"), kernel_name=SPEC_OF[PLAIN])


def install_ours(folder: Path, environ: Mapping[str, str]) -> None:
    """Install our kernelspec below ``folder``/prefix, through the command line as a user does."""
    words = ["install", "--prefix", str(folder / "prefix"), "--name", SPEC_OF[FIRST_CELL]]
    done = subprocess.run(
        [sys.executable, "-m", "bitfusion_kernel.cli", *words],
        env={**environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"bitfusion-kernel install failed: {done.stderr.strip()[-500:]}")


def _private_environ(folder: Path) -> dict[str, str]:
    """The environment of all kernels: nothing of the user's settings, history or pool."""
    environ: dict[str, Any] = {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.defpath]),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": folder / "home",
        "IPYTHONDIR": folder / "home" / "ipython",
        "JUPYTER_CONFIG_DIR": folder / "home" / "config",
        "JUPYTER_RUNTIME_DIR": folder / "home" / "runtime",
        "XDG_RUNTIME_DIR": folder / "run",
        "BITFUSION_POOL_DIR": folder / "pool",
        "BITFUSION_POOL_CONFIG": folder / "pool.toml",
    }
    for name in ("home", "run", "pool"):
        (folder / name).mkdir(mode=0o700)
    (folder / "pool.toml").write_text(POOL_TOML)
    return {name: str(value) for name, value in environ.items()}


def _expect_nothing_left(mark: str, variant: Variant) -> None:
    deadline = time.monotonic() + LEFT_OVER_SECONDS
    while left := processes.marked(mark):
        if time.monotonic() > deadline:
            names = [" ".join(processes.command(pid))[:80] for pid in left]
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise LeftOvers(f"{variant.name}: still alive after the shutdown: {names}")
        time.sleep(0.02)
