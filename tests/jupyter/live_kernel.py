"""A kernel started through jupyter_client, as notebook tools start it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from jupyter_client.manager import KernelManager

from tests.jupyter.client import Cell, Client, channels_of
from tests.support.machine import scaled
from tests.support.processes import freeze, thaw
from tests.support.waiting import Deadline, wait_until


class LiveKernel:
    """A kernel under a plain KernelManager, as nbclient and the server's manager start it."""

    def __init__(self, name: str, options: dict[str, Any] | None = None, **start: Any) -> None:
        self.name = name
        self.manager = KernelManager(kernel_name=name, **(options or {}))
        self.clients: list[Client] = []
        # With pytest's variable ipykernel would not watch the file descriptors that child processes write to.
        start["env"] = without_pytest(start.get("env") or os.environ)
        self.manager.start_kernel(**start)

    @property
    def pid(self) -> int:
        provisioner = self.manager.provisioner
        assert provisioner is not None
        return int(provisioner.pid)  # type: ignore[attr-defined]  # only LocalProvisioner has it

    def connect(self, ready: bool = True) -> Client:
        """A new client; `ready` waits for the kernel as notebook tools do.

        The first one is the manager's own; others read the connection file, since the manager's clients
        share one session and so one identity on the wire.
        """
        if self.clients:
            channels = channels_of(self.manager.connection_file)
        else:
            channels = self.manager.client()
            channels.start_channels()
        client = Client(channels)
        self.clients.append(client)
        if ready:
            channels.wait_for_ready(timeout=scaled(30))
        return client

    @property
    def client(self) -> Client:
        return self.clients[0] if self.clients else self.connect()

    def run(self, code: str, limit_s: float = 30, **options: Any) -> Cell:
        return self.client.run(code, limit_s, **options)

    def send_together(self, *codes: str) -> list[Cell]:
        """Send cells so that the kernel finds all of them when it looks at the first one."""
        client = self.client
        freeze(self.pid)
        try:
            cells = [client.send(code) for code in codes]
            time.sleep(scaled(0.1))  # until zmq's thread has sent them
        finally:
            thaw(self.pid)
        return cells

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def restart(self, now: bool = False) -> None:
        """Restart it and wait until it is ready."""
        self.manager.restart_kernel(now=now)
        self.client.channels.wait_for_ready(timeout=scaled(30))

    def stop(self, now: bool = False) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=now)
        self.manager.cleanup_connection_file()

    def wait_for_end(self, limit_s: float | Deadline) -> None:
        """Until the kernel's own process has ended."""
        wait_until(lambda: not self.manager.is_alive(), f"the end of the process {self.pid}", limit_s)


def without_pytest(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment a user's own tools would have."""
    return {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
