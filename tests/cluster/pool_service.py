"""A pool on the network beside a test cluster: `bitfusion-pool serve`, set up as the how-to says.

As Bitfusion's servers are, it is no part of the cluster; pods reach it at the address of a node's machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bitfusion_pool
from tests.cluster.cluster import Cluster
from tests.cluster.components import clean_environment
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.waiting import wait_until

CLIENT = str(Path(bitfusion_pool.__file__).parent / "bin" / "bitfusion")
ISSUER = "cluster"
"""The name of the token from which a cluster gets those of its namespaces."""


class PoolService:
    """A service with two simulated GPUs, for `with`."""

    def __init__(self, cluster: Cluster, address: str, *options: str) -> None:
        """`address` is this machine's, as pods know it; `options` go to `serve` beside the test's."""
        self.address = f"{address}:{free_port()}"
        self._environment = clean_environment(cluster.folder)
        self._socket = str(cluster.folder / "pool.socket")
        # A socket's path is short; the ledger's folder is the service's own.
        self.folder = cluster.folder / "pool"
        self.folder.mkdir(mode=0o700)
        self.ask("certificate", "create", "--host", address)
        self.process = cluster.component(
            "bitfusion-pool",
            [
                *(_COMMAND, "--dir", str(self.folder), "serve", "--gpus", "simulated"),
                *("--listen", self.address, "--socket", self._socket, *options),
            ],
            self._answers,
        )

    def __enter__(self) -> PoolService:
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words: str) -> str:
        """What the administrator's command answers."""
        done = subprocess.run(
            [_COMMAND, "--dir", str(self.folder), *words],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=scaled(30),
            env=self._environment,
        )  # fmt: skip
        assert done.returncode == 0, f"bitfusion-pool {' '.join(words)}: {done.stderr.strip()}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        """The pool as its administrator sees it."""
        found: dict[str, Any] = json.loads(self.ask("status", "--json"))
        return found

    def leases(self) -> list[dict[str, Any]]:
        """Who holds what."""
        return list(self.status()["leases"])

    @contextmanager
    def held(self) -> Iterator[None]:
        """A program on this machine holds a GPU while this lasts."""
        holder = subprocess.Popen(
            [CLIENT, "run", "-n", "1", "--", "sleep", "3600"],
            env=self._environment | {"BITFUSION_POOL": self._socket, "BITFUSION_LABEL": "a program"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            wait_until(self.leases, "the program's GPU", 20)
            yield
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()

    def issuer_files(self, folder: Path) -> Path:
        """The three files of a token that issues others, as a cluster's administrator is given them."""
        self.ask(
            *("token", "create", ISSUER, "--issuer", "--may-issue-gpus", "2", "--may-issue-for", "30d"),
            *("--files", str(folder), "--server", self.address),
        )
        return folder

    def _answers(self) -> bool:
        try:
            return bool(self.status())
        except (AssertionError, ValueError, subprocess.TimeoutExpired):
            return False


_COMMAND = os.path.join(os.path.dirname(sys.executable), "bitfusion-pool")
