"""A service of a test: `bitfusion-pool serve` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import bitfusion_pool
from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.service.socket_client import SocketClient, connected
from tests.support.machine import scaled
from tests.support.waiting import wait_until

LIMIT_S = 20.0


class RunningService:
    """Its folder, its socket, its log. `start` starts it, also again."""

    def __init__(self, base: Path, *options: str) -> None:
        self.folder = base / "pool"
        self.socket = str(base / "socket")
        self.options = options
        self.log: list[dict[str, object]] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def configure(self, text: str) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / "pool.toml").write_text(text)

    def command(self) -> list[str]:
        words = ["--dir", str(self.folder), "serve", "--socket", self.socket, *self.options]
        return [sys.executable, "-m", "bitfusion_pool.admin.cli", *words]

    def start(self) -> RunningService:
        self._process = subprocess.Popen(
            self.command(),
            cwd=Path(bitfusion_pool.__file__).parent.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_log, args=(self._process,))
        self._reader.start()
        wait_until(self._is_started, lambda: self.log, LIMIT_S)
        return self

    def _is_started(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        return any(line["message"] == "service started" for line in self.log)

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(json.loads(line) if line.startswith("{") else {"message": line})

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit status. It may have ended before."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        status = process.wait(timeout=scaled(LIMIT_S))
        assert self._reader is not None
        self._reader.join()
        assert process.stderr is not None
        process.stderr.close()
        self.log = []
        return status

    def client(self) -> SocketClient:
        return connected(self.socket)

    def entries(self) -> list[Entry]:
        """What is in the ledger, looked at from outside."""
        with Ledger({**os.environ, "BITFUSION_POOL_DIR": str(self.folder)}) as ledger:
            return ledger.entries()

    def until_entries(self, count: int) -> list[Entry]:
        wait_until(lambda: len(self.entries()) == count, lambda: self.entries(), LIMIT_S)
        return self.entries()
