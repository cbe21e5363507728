"""A real Jupyter server as a process, and clients of the kernels that it runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.chain import chain, chain_processes, wait_for_no_process
from tests.jupyter.client import Client, channels_of
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import without_pytest
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.waiting import Deadline, wait_until

RESTART_S = 5.0  # the restarter looks every 3 s
STEADY = 10  # looks, a tenth of a second apart

SURELY_KEPT_S = 3.5
"""A new proxy that is seen so soon after a kill joins in time; on a busy machine it may come too late."""

# They would take half of the server's start, and have no part in what becomes of kernels.
_NO_EXTENSIONS = dict.fromkeys(
    ("jupyterlab", "jupyter_lsp", "notebook_shim", "jupyter_server_terminals"), False
)


class ServerProcess:
    """`jupyter server` or `jupyter lab` on a free port, ready to answer.

    Args:
        module: What is run with ``python -m``.
        folder: For the log.
        options: Beside those that every server here gets.
        environment: Beside the test's own.
        under: What makes of its command line that of another program, under which it runs.
        python: Of the environment that has the module.
    """

    def __init__(
        self,
        module: str,
        folder: Path,
        options: Sequence[str],
        environment: Mapping[str, str],
        under: Callable[[list[str]], list[str]] = list,
        python: str = sys.executable,
    ) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.log = folder / f"{module}.log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                under(
                    [
                        *(python, "-X", "faulthandler", "-m", module, "--no-browser", "--allow-root"),
                        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
                        "--IdentityProvider.token=",
                        *options,
                    ]
                ),
                env=without_pytest(os.environ | environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: self.ask("GET", "/api/status"), self.log.read_text, 40, errors=(OSError,))
        except BaseException:
            self.stop()
            raise

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        """The answer to a request of its REST API."""
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=scaled(20)) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def stop(self) -> None:
        """End it gently. Fails with its log and all its stacks if it stands anywhere but at its last step."""
        self.process.terminate()
        looks: deque[bool] = deque(maxlen=STEADY)
        with suppress(AssertionError):
            wait_until(
                lambda: self.process.poll() is not None or _waits_for_a_thread(self.process.pid, looks)
            )
        try:
            self.process.wait(scaled(2))
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler writes all stacks to the log
            self.process.wait(scaled(20))
            log = self.log.read_text()
            if not _waits_for_anyio(log):
                pytest.fail(f"the server did not end:\n{log[-8000:]}", pytrace=False)


def _waits_for_a_thread(pid: int, looks: deque[bool]) -> bool:
    """Whether its main thread has done nothing else for `STEADY` looks: the interpreter ends."""
    with suppress(FileNotFoundError):  # ended meanwhile
        looks.append("futex" in Path(f"/proc/{pid}/task/{pid}/wchan").read_text())
    return looks.count(True) == STEADY


def _waits_for_anyio(log: str) -> bool:
    """Whether its kernels were shut down, and only the interpreter waits, for a thread of anyio.

    jupyter_server 2.21 reads files in anyio's threads and ends its loop by itself; a thread that became idle
    at that moment is never told to end.
    """
    _, _, stacks = log.partition("Fatal Python error: Aborted")
    threads = stacks.count("(most recent call first)")
    last_step = re.search(r'Current thread .*\n  File ".*threading\.py", line \d+ in _shutdown\n', stacks)
    others_are_anyios = threads == 1 + stacks.count("anyio/_backends/_asyncio.py")
    return "Kernel shutdown: " in log and last_step is not None and others_are_anyios


class Server(ServerProcess):
    """A Jupyter server without JupyterLab; its kernels are reached through their connection files."""

    def __init__(
        self, folder: Path, under: Callable[[list[str]], list[str]] = list, options: Sequence[str] = ()
    ) -> None:
        self.root = folder
        self.runtime = folder / "runtime"
        self.clients: list[Client] = []
        super().__init__(
            "jupyter_server",
            folder,
            [
                "--ServerApp.disable_check_xsrf=True",
                f"--ServerApp.root_dir={folder}",
                f"--ServerApp.jpserver_extensions={_NO_EXTENSIONS}",
                *options,
            ],
            {"JUPYTER_RUNTIME_DIR": str(self.runtime)},
            under,
        )

    def start_kernel(self, name: str) -> str:
        return str(self.ask("POST", "/api/kernels", {"name": name})["id"])

    def connect(self, kernel_id: str, ready: bool = True) -> Client:
        """A client of that kernel; `ready`: once the kernel is."""
        channels = channels_of(str(self.runtime / f"kernel-{kernel_id}.json"))
        client = Client(channels)
        self.clients.append(client)
        if ready:
            channels.wait_for_ready(timeout=scaled(30))
        return client

    def wait_for_answer(self, client: Client) -> None:
        """Until a restarted kernel speaks to a client it already had.

        Not `wait_for_ready`, which gives up when the heart of the dead kernel is missed meanwhile.
        """

        def answers() -> bool:
            asked = client.ask("kernel_info_request")
            client.pump(lambda: asked in client.replies and client.messages_for(asked), 1, "an answer")
            return True

        wait_until(answers, lambda: self.log.read_text()[-4000:], 20, errors=(AssertionError,))

    def drop(self, client: Client) -> None:
        """Close a client."""
        self.clients.remove(client)
        client.close()

    def delete(self, kernel_id: str, client: Client) -> None:
        """Close the client and end its kernel."""
        self.drop(client)
        self.ask("DELETE", f"/api/kernels/{kernel_id}")

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        super().stop()


class Kernels:
    """The only kernel that a server runs at a time, as its processes."""

    def __init__(self, server: Server, pool: Pool, holder: int | None = None) -> None:
        self._of = (pool, server.process.pid, holder)
        self._killed_at = 0.0

    def roles(self) -> dict[str, Process]:
        return chain(*self._of)

    def pids(self) -> set[int]:
        return {process.pid for process in chain_processes(*self._of)}

    def wait_for_the_end_of(self, pids: set[int], limit: float | Deadline) -> None:
        pool, server, holder = self._of
        wait_for_no_process(pool, limit, server, holder, among=pids)

    def wait_for_no_process(self, limit: float | Deadline) -> None:
        pool, server, holder = self._of
        wait_for_no_process(pool, limit, server, holder)

    def kill(self, victim: Process) -> None:
        self._killed_at = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)

    def wait_for_the_restarted_one(self, old: Process) -> bool:
        """Whether it is there so soon after `kill` that it surely goes on with what there was."""
        wait_until(lambda: self.roles().get("proxy", old).pid != old.pid, "the restarted kernel", RESTART_S)
        return time.monotonic() - self._killed_at < SURELY_KEPT_S
