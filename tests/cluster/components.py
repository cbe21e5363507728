"""One component of the control plane: start it, stop it by any signal, start it again, wait until it serves.

Every process is in a session of its own, so that a Ctrl-C in the terminal reaches the tests and not the
cluster, and is noted at a guardian, which ends it if this process is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.cluster import guardian
from tests.support import processes
from tests.support.machine import scaled
from tests.support.waiting import Deadline

CLUSTER_MARK = "BITFUSION_TEST_CLUSTER"
"""In the environment of every process of a cluster; its value is the cluster's folder."""


class ComponentFailed(Exception):
    """A component that ended or did not get ready; with the last lines it wrote."""


class Guardian:
    """The process that outlives this one for a moment, to end what this one started."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=clean_environment(folder),
            start_new_session=True,
            text=True,
        )

    def add(self, pid: int) -> str:
        """Note a process; returns its start time."""
        start = guardian.start_time(pid) or "0"
        self._tell(f"+{pid} {start}\n")
        return start

    def remove(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def add_cgroup(self, folder: Path) -> None:
        """Note a folder of cgroups that goes at the end, when its processes have ended."""
        self._tell(f"^{folder}\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """It ends what is still noted, removes the cluster's folder, and goes."""
        with self._lock, suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait(scaled(30))

    def _tell(self, line: str) -> None:
        with self._lock, suppress(BrokenPipeError):  # killed by somebody: what is left ends by our hand
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()


class Component:
    """etcd, the apiserver, the controller-manager, or one beside them; the same command at each start."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        watcher: Guardian,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to a clean one."""
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = list(command)
        self._folder = folder
        self._guardian = watcher
        self._ready = ready
        self._environment = {**clean_environment(folder), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._start = ""

    @property
    def pid(self) -> int:
        """Of the last start."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def start_time(self) -> str:
        """What tells this process from a later one with the same id."""
        return self._start

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, wait: bool = True, limit_s: float = 60.0) -> float:
        """Start it, on the same ports and data as before; returns the seconds until it was ready."""
        assert not self.running, f"{self.name} is running"
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._start = self._guardian.add(self._process.pid)
        if wait:
            self.wait_ready(limit_s)
        return time.monotonic() - began

    def wait_ready(self, limit_s: float = 60.0) -> None:
        """Until it serves; raises ComponentFailed when it ends before, or takes longer than `limit_s`."""
        deadline = Deadline(limit_s)
        while True:
            ready = self._ready()
            if not self.running:  # whoever answered then was somebody else
                raise ComponentFailed(f"{self.name} ended; its last lines:\n{self.last_lines()}")
            if ready:
                return
            if deadline.passed:
                raise ComponentFailed(
                    f"{self.name} was not ready within {deadline.limit_s:.0f} s; "
                    f"its last lines:\n{self.last_lines()}"
                )
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM, limit_s: float = 90.0) -> float:
        """End it by this signal and wait; returns the seconds it took.

        An apiserver that gets SIGTERM waits up to a minute for its open watches.
        """
        if self._process is None:
            return 0.0
        began = time.monotonic()
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(scaled(limit_s))
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(scaled(10))
                raise ComponentFailed(f"{self.name} did not end within {scaled(limit_s):.0f} s") from None
        self._guardian.remove(self._process.pid)
        return time.monotonic() - began

    def kill(self) -> float:
        """End it by SIGKILL and wait."""
        return self.stop(signal.SIGKILL, 10.0)

    def restart(self, number: int = signal.SIGTERM) -> float:
        """Stop and start; returns the seconds of both together."""
        return self.stop(number) + self.start()

    def freeze(self) -> None:
        """Stop it as a whole: its connections stay open and nothing answers."""
        processes.freeze(self.pid)

    def thaw(self) -> None:
        processes.thaw(self.pid)

    def last_lines(self, count: int = 15) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return "(no log)"


def clean_environment(folder: Path) -> dict[str, str]:
    """Nothing of the caller's: no proxy, no kubeconfig, and not the mark by which tests find leftovers."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LC_ALL": "C.UTF-8",
        CLUSTER_MARK: str(folder),
    }


def marked_processes(folder: Path) -> list[int]:
    """The processes of the cluster in that folder that are alive, wherever they went."""
    mark = f"{CLUSTER_MARK}={folder}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = mark in file.read().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or another user's
        if marked and guardian.start_time(int(name)) is not None:
            found.append(int(name))
    return found
