"""Notebooks for the soak: under a plain kernel manager, and in a Jupyter server whose restarter watches."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from random import Random

from tests.jupyter.chain import role_of
from tests.jupyter.client import Cell, Client
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Server
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled
from tests.support.processes import Process, processes_with

ANSWER_S = 15.0
"""Seconds for an interrupted cell to end, and for a kernel to be there again."""
LOST_S = 5.0
"""Seconds after which an interrupted cell is asked after."""
MARK, IDLE_RELEASE = "BITFUSION_LABEL", "BITFUSION_IDLE_RELEASE"


class NotAnswered(AssertionError):
    """A cell that nothing has become of: an anomaly."""


class Notebook(ABC):
    """One document and its kernel. All is done in one thread.

    Attributes:
        name: By which its processes are found.
        random: What is done, and when.
        diary: What was done last, for whoever looks for the cause of an anomaly.
        gives_back_idle: Whether its kernel gives its GPU back after a minute without work.
    """

    gives_back_idle = False

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.random = random
        self.client: Client | None = None
        self.diary: deque[str] = deque(maxlen=12)

    def note(self, what: str) -> None:
        """Write it into the diary."""
        self.diary.append(f"{time.strftime('%H:%M:%S')} {what}")

    # -- what differs ------------------------------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Start a kernel and connect."""

    @abstractmethod
    def reconnect(self) -> None:
        """As a reload of the page: another client in place of this one."""

    @abstractmethod
    def interrupt(self) -> None:
        """The button."""

    @abstractmethod
    def restart(self, *, now: bool) -> None:
        """The button, or what is done to a kernel that hangs; returns when the next one is ready."""

    @abstractmethod
    def recover(self) -> None:
        """Something was killed: wait for the kernel that comes after a death, if the kernel has died."""

    @abstractmethod
    def shut_down(self, *, now: bool = False) -> None:
        """For good; `now`: of one that does not answer any more."""

    @abstractmethod
    def log(self) -> str:
        """What its kernels have written last."""

    # -- what is alike -----------------------------------------------------------------------------

    @property
    def connected(self) -> Client:
        """The client."""
        assert self.client is not None
        return self.client

    def send(self, code: str) -> Cell:
        """A cell, sent."""
        return self.connected.send(code)

    def settle(self, cell: Cell, patience: float) -> None:
        """Wait for the cell so long, then interrupt it; it is over when this returns. Raises NotAnswered."""
        client = self.connected
        self.note(f"{cell.code!r}, for {patience:.1f} s")
        end = time.monotonic() + patience
        client.pump(lambda: cell.done or time.monotonic() > end, patience + 30, "time")
        if not cell.done:
            self.interrupt()
            try:
                self._finish(cell)
            except AssertionError as error:
                told = cell.error_text if cell.of("error") else ""
                raise NotAnswered(f"interrupted, and then {error}\n{told}") from None

    def _finish(self, cell: Cell) -> None:
        """It has been interrupted. A plain kernel may lose a reply to that, which the next request tells."""
        try:
            self.connected.finish(cell, LOST_S)
        except AssertionError:
            self.connected.ask("kernel_info_request")
            self.connected.finish(cell, ANSWER_S)

    def processes(self) -> list[Process]:
        """Those of its kernel by role; what a cell has started is left out."""
        found = processes_with(f"{MARK}={self.name}")
        return sorted(process for process in found if role_of(process.command) != "other")


class Managed(Notebook):
    """Under jupyter_client's manager, as in nbclient; whoever uses it restarts what has died."""

    def __init__(self, name: str, random: Random, spec: str, folder: Path, **settings: str) -> None:
        super().__init__(name, random)
        self._spec = spec
        self._settings = {MARK: name, **settings}
        self.gives_back_idle = IDLE_RELEASE in settings
        self._log = (folder / f"{name}.log").open("a+")  # open for as long as a restart may need it
        self._kernel: LiveKernel | None = None

    @property
    def _live(self) -> LiveKernel:
        assert self._kernel is not None
        return self._kernel

    def start(self) -> None:
        output = self._log.fileno()
        self._kernel = LiveKernel(self._spec, env=os.environ | self._settings, stdout=output, stderr=output)
        self.client = self._kernel.connect()
        if self.random.random() < 0.5:
            self.client.like_jupyterlab()

    def reconnect(self) -> None:
        """The manager's client closes; another one is made as the first was."""
        self._live.clients.remove(self.connected)
        self.connected.close()
        self.client = self._live.connect(ready=False)

    def interrupt(self) -> None:
        self._live.interrupt()

    def restart(self, *, now: bool) -> None:
        self._live.restart(now=now)

    def recover(self) -> None:
        self.connected.settle(scaled(2))  # a kernel whose launcher was killed still answers for a moment
        end = time.monotonic() + scaled(4)
        probe = self.send("1")
        self.connected.pump(lambda: probe.done or self._is_dead() or time.monotonic() > end, 60, "time")
        if not probe.done:
            self.note(f"restart: {'dead' if self._is_dead() else 'no answer'}")
            # with now=False jupyter_client asks the dead one to shut down, and the next one hears it (linger)
            self.restart(now=True)

    def _is_dead(self) -> bool:
        return not self._live.manager.is_alive()

    def shut_down(self, *, now: bool = False) -> None:
        self._live.stop(now=now)
        self._kernel = self.client = None

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")[-3000:]


class Served(Notebook):
    """In a Jupyter server, opened as a session, reached over its connection file."""

    def __init__(self, name: str, random: Random, spec: str, server: Server) -> None:
        super().__init__(name, random)
        self._spec = spec
        self._server = server
        self._session = self._id = ""

    def start(self) -> None:
        kernel = {"name": self._spec}
        asked = {"path": self.name, "name": self.name, "type": "notebook", "kernel": kernel}
        made = self._server.ask("POST", "/api/sessions", asked)
        self._session, self._id = made["id"], made["kernel"]["id"]
        self.client = self._server.connect(self._id)

    def reconnect(self) -> None:
        self._server.drop(self.connected)
        self.client = self._server.connect(self._id, ready=False)

    def interrupt(self) -> None:
        self._server.ask("POST", f"/api/kernels/{self._id}/interrupt")

    def restart(self, *, now: bool) -> None:
        self._server.ask("POST", f"/api/kernels/{self._id}/restart")
        self._server.wait_for_answer(self.connected)

    def recover(self) -> None:
        self.connected.settle(scaled(5))  # the restarter looks every 3 s
        self._server.wait_for_answer(self.connected)

    def shut_down(self, *, now: bool = False) -> None:
        self._server.drop(self.connected)
        self._server.ask("DELETE", f"/api/sessions/{self._session}")
        self.client = None

    def log(self) -> str:
        return self._server.log.read_text(errors="replace")[-3000:]

    def processes(self) -> list[Process]:
        found = processes_with(f"JPY_SESSION_NAME={self._server.root / self.name}")
        return sorted(process for process in found if role_of(process.command) != "other")


def wait_for_no_process(pool: Pool, seconds: float) -> list[Process]:
    """What is left of a pool's processes after so many seconds."""
    end = time.monotonic() + scaled(seconds)
    while (left := sorted(processes_with(pool.mark))) and time.monotonic() < end:
        time.sleep(0.2)
    return left
