"""What must hold while notebooks come and go: of the pool, looked at all the time, and at the end."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.jupyter.chain import role_of
from tests.jupyter.embedded_pool import MEMORY_MIB, Pool
from tests.jupyter.soak.notebooks import wait_for_no_process
from tests.support.machine import scaled
from tests.support.processes import processes_with

LOOK_S = 1.0
GONE_S = 6.0
"""Seconds that a lease may have no process at all: the kill matrix has 2, this machine is never calm."""
PARKED_S = 34.0
"""The same without a kernel: 30 of a restart, 4 of a death."""


class Watcher(threading.Thread):
    """Looks at the pool; `tell` gets each anomaly."""

    def __init__(self, pool: Pool, tell: Callable[[str], None]) -> None:
        super().__init__(name="invariants", daemon=True)
        self._pool = pool
        self._tell = tell
        self._over = threading.Event()
        self._without: dict[tuple[str, str], float] = {}
        self.looks = 0

    def run(self) -> None:
        """Until `end` is called."""
        while not self._over.wait(LOOK_S):
            self._look()
            self.looks += 1

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def _look(self) -> None:
        leases = self._pool.leases()
        used: Counter[int] = Counter()
        for lease in leases:
            for device in lease["devices"]:
                used[device["id"]] += device["memory_mib"]
        for device_id, mib in used.items():
            if mib > MEMORY_MIB:
                self._tell(f"GPU {device_id} is held {mib} MiB of {MEMORY_MIB}: {leases}")
        missing = {}
        for lease in leases:
            found = processes_with(f"BITFUSION_POOL_LEASE={lease['id']}")
            roles = {role_of(process.command) for process in found}
            if not found:
                missing[lease["id"], "any process"] = scaled(GONE_S)
            elif "launcher" in roles and "kernel" not in roles:
                missing[lease["id"], "a kernel"] = scaled(PARKED_S)
        now = time.monotonic()
        self._without = {what: self._without.get(what, now) for what in missing}
        for (lease_id, what), since in list(self._without.items()):
            if now - since > missing[lease_id, what]:
                self._tell(f"the lease {lease_id} is without {what} for {now - since:.0f} s")
                self._without[lease_id, what] = now + 3600


def what_is_left(pool: Pool, folders: list[Path]) -> list[str]:
    """All that is still there when every notebook has been shut down: each is an anomaly."""
    left = [f"{process} is left" for process in wait_for_no_process(pool, 10)]
    left += [f"the lease {lease['id']} is left" for lease in pool.leases()]
    left += [f"{waiter['id']} still waits" for waiter in pool.waiting()]
    for folder in folders:
        # of kernels that were killed and never restarted their size is left: README, "Uninstall"
        files = [path for path in sorted(folder.rglob("*")) if path.parent.name != "requests"]
        left += [f"{path} is left" for path in files if not path.is_dir()]
        left += [f"{path} is left" for path in sorted(folder.glob("bf*")) if path.is_dir()]
    return left


def device_load() -> str:
    """The machine's load, for the report."""
    return f"load {os.getloadavg()[0]:.1f}"
