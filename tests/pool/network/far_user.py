"""A user on another machine: the three files of a client, `bitfusion run`, and a network to the pool."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from bitfusion_client.command.client_lines import Line
from bitfusion_client.command.client_output import parse_line
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import prepare_folder, read_authority, write_client_files
from tests.pool.client.network_user import keeper_of
from tests.pool.network.cutting_proxy import CuttingProxy, Side
from tests.pool.pool_client import PoolClient
from tests.pool.service.tls_client import HOST, NetworkService
from tests.support.machine import scaled
from tests.support.processes import freeze, read_process, thaw, unread_bytes
from tests.support.waiting import wait_until

LIMIT_S = 20.0
ANSWER_S = 0.1
"""Within which the service's answer has come."""

ROUTERS, PROXY, NOTHING = "routers", "proxy", "nothing"
SLEEPER = ("sh", "-c", "echo $$; exec sleep 3600")


class FarUser:
    """One user and the program that holds a GPU for them. A context manager; `proxy` is their network.

    Args:
        service: What they use.
        home: A folder to be made.
        name: Of their token.
        way: What the network is: ROUTERS, a PROXY, or NOTHING that is in between.
    """

    def __init__(self, service: NetworkService, home: Path, name: str, way: str = ROUTERS) -> None:
        self.name = name
        self.proxy = CuttingProxy(service.port, as_router=way == ROUTERS)
        home.mkdir()
        folder = prepare_folder(str(home / ".bitfusion"), False)
        server = Address(HOST, service.port if way == NOTHING else self.proxy.port)
        write_client_files(folder, [server], service.token(name), read_authority(service.authority))
        self.client = PoolClient(home / "unused", home)
        for variable in ("BITFUSION_POOL_DIR", "BITFUSION_POOL", "BITFUSION_POOL_CONFIG"):
            self.client.environ.pop(variable, None)
        self.program = 0
        """The program's number, once `run` has started it."""
        self.lines: list[Line] = []
        """What `bitfusion run` has written to stderr, as the kernel reads it."""
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> FarUser:
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            try:
                self.finish()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                self._close()
        self.proxy.__exit__(None, None, None)

    def run(self, *words: str) -> None:
        """Take a GPU for a program, which writes its number first; until it has."""
        self._process = self.client.start("run", "-n", "1", "--", *(words or SLEEPER))
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._process.stdout is not None
        self.program = int(self._process.stdout.readline())

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(parse_line(line))

    @property
    def runs(self) -> bool:
        """Whether the program lives."""
        return read_process(self.program) is not None

    def said(self, kind: type[Line]) -> list[Line]:
        return [line for line in self.lines if isinstance(line, kind)]

    @property
    def keeper(self) -> int:
        """The process that keeps the lease; it may outlive the command until it has given its GPU back."""
        assert self._process is not None
        return keeper_of(self._process.pid)

    def kill(self, unread: bool = False) -> None:
        """SIGKILL of the program and of all that could give its GPU back.

        At a moment when all that has come is read, or else when something is `unread`: the connection is then
        reset, as a router may also do.
        """
        process = self._process
        assert process is not None
        keeper = keeper_of(process.pid)
        freeze(process.pid)  # or it starts another keeper
        if unread:
            self.proxy.hold(Side.SERVICE)
            wait_until(lambda: unread_bytes(os.getpid()), "an answer that is held", LIMIT_S)
            freeze(keeper)
            self.proxy.flow()
            wait_until(lambda: unread_bytes(keeper), "an answer", LIMIT_S)
        else:
            wait_until(lambda: _stands_with_all_read(keeper), "the keeper with nothing unread", LIMIT_S)
        for pid in (keeper, process.pid, self.program):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self._close()

    def finish(self) -> int:
        """Let the program end, or have it ended; returns the command's status."""
        assert self._process is not None
        if self.runs:
            os.kill(self.program, signal.SIGKILL)
        status = self._process.wait(scaled(LIMIT_S))
        self._close()
        return status

    def ended(self) -> int:
        """Wait until the command has ended by itself; returns its status."""
        process = self._process
        assert process is not None
        wait_until(lambda: process.poll() is not None, lambda: self.lines, LIMIT_S)
        return self.finish()

    def _close(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert self._reader is not None
        self._reader.join(scaled(LIMIT_S))
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def _stands_with_all_read(pid: int) -> bool:
    freeze(pid)
    time.sleep(scaled(ANSWER_S))
    if unread_bytes(pid) == 0:
        return True
    thaw(pid)
    return False
