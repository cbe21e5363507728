"""The stand-in command of a test, started as a person would start it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import bitfusion_pool
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry
from bitfusion_pool.ledger.ledger import Ledger
from tests.support.machine import scaled
from tests.support.waiting import wait_until

COMMAND = str(Path(bitfusion_pool.__file__).parent / "bin" / "bitfusion")
LIMIT_S = 20.0  # for one command, on a calm machine
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
UUIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait until the process has ended; returns what it wrote to stdout and stderr."""
    return process.communicate(timeout=scaled(LIMIT_S))


def until_told_to_wait(process: subprocess.Popen[str]) -> None:
    """Until the command has heard of its place, with which it comes back after a restart of the service.

    The ledger has the request a little earlier. What is written to stderr later is still there.
    """
    assert process.stderr is not None
    next(line for line in process.stderr if "Waiting for GPUs" in line)


def uniform(text: str) -> str:
    """The client's output without what differs from run to run."""
    text = UUIDS.sub("UUID", TIMES.sub("TIME", text))
    return re.sub(r"/[^' ]*/bitfusion\d{9}", "FILE", text)


class PoolClient:
    """One pool folder, and commands that use it."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.environ = {
            **os.environ,
            "BITFUSION_POOL_DIR": str(folder),
            "BITFUSION_PYTHON": sys.executable,
            "HOME": str(home),
            "TMPDIR": str(home),
        }

    def configure(self, text: str) -> None:
        """Write the pool's pool.toml."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "pool.toml").write_text(text)

    def ledger(self) -> Ledger:
        return Ledger(self.environ)

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """The command, running, in a process group of its own."""
        return subprocess.Popen(
            [COMMAND, *words],
            env={**self.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def do(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """The command, ended."""
        process = self.start(*words, env=env)
        out, err = finish(process)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def admin(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`bitfusion-pool`, ended."""
        return subprocess.run(
            [sys.executable, "-m", "bitfusion_pool.admin.cli", *words],
            env=self.environ,
            cwd=Path(bitfusion_pool.__file__).parent.parent,
            capture_output=True,
            text=True,
            timeout=scaled(LIMIT_S),
        )

    def entries(self, state: str) -> list[Entry]:
        with self.ledger() as ledger:
            return [entry for entry in ledger.entries() if entry.state == state]

    def until_held(self, count: int = 1) -> None:
        wait_until(lambda: len(self.entries(HELD)) == count, f"{count} leases", LIMIT_S)

    def until_waiting(self, count: int) -> None:
        wait_until(lambda: len(self.entries(WAITING)) == count, f"{count} waiting", LIMIT_S)
