"""A pool of a test's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bitfusion_pool
from bitfusion_pool.admin.status_json import status_json
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.snapshot import take_snapshot
from tests.support.machine import scaled
from tests.support.waiting import Deadline, wait_until

CLIENT = str(Path(bitfusion_pool.__file__).parent / "bin" / "bitfusion")
DEVICE = "Simulated Tesla V100-PCIE-16GB"
MEMORY_MIB = 16160


class Pool:
    """One server with simulated GPUs in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder.parent / "pool.toml"

    @property
    def mark(self) -> str:
        """What every process of this pool's user carries in its environment."""
        return f"BITFUSION_POOL_DIR={self.folder}"

    @property
    def environment(self) -> dict[str, str]:
        return {"BITFUSION_POOL_DIR": str(self.folder), "BITFUSION_POOL_CONFIG": str(self.config)}

    def write(self, gpus: int, manners: str = "") -> None:
        """(Re)write the pool's configuration; `manners` as `name=value,name=value`."""
        self.config.write_text(
            f'[[servers]]\nname = "local"\naddress = "127.0.0.1"\nport = 56001\n'
            f'[[servers.devices]]\nname = "{DEVICE}"\nmemory_mib = {MEMORY_MIB}\ncount = {gpus}\n'
            + "[manners]\n"
            + "".join('{} = "{}"\n'.format(*pair.split("=")) for pair in manners.split(",") if pair)
        )

    def status(self) -> dict[str, Any]:
        """What `bitfusion-pool status --json` says; in this process, as it is asked for often."""
        with Ledger(os.environ | self.environment) as ledger:
            found: dict[str, Any] = json.loads(json.dumps(status_json(take_snapshot(ledger))))
        return found

    def leases(self) -> list[dict[str, Any]]:
        if not self.folder.exists():
            return []
        return list(self.status()["leases"])

    def waiting(self) -> list[dict[str, Any]]:
        if not self.folder.exists():
            return []
        return list(self.status()["waiting"])

    def held(
        self, label: str = "somebody.ipynb"
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """One GPU is somebody else's while this lasts."""
        return self._other(label, 1, self.leases, "the holder's GPU")

    def asked_before(
        self, label: str, gpus: int
    ) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """Somebody else waits for GPUs while this lasts."""
        return self._other(label, gpus, self.waiting, "the waiter's position")

    @contextlib.contextmanager
    def _other(
        self, label: str, gpus: int, is_there: Callable[[], object], what: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        holder = subprocess.Popen(
            [CLIENT, "run", "-n", str(gpus), "--", "sleep", "600"],
            env=os.environ | self.environment | {"BITFUSION_LABEL": label},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            wait_until(is_there, lambda: f"{what}; {_told(holder)}")
            yield holder
        finally:
            self.end(holder)

    def end(self, holder: subprocess.Popen[bytes]) -> None:
        """The holder's program ends, and its lease with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(holder.pid, signal.SIGKILL)
        holder.wait(scaled(10))
        if holder.stderr is not None:
            holder.stderr.close()

    def wait_until_free(self, limit_s: float | Deadline) -> None:
        wait_until(lambda: not self.leases(), lambda: f"the end of {self.leases()}", limit_s)

    def wait_until_nobody_waits(self, limit_s: float | Deadline) -> None:
        wait_until(lambda: not self.waiting(), lambda: f"the end of {self.waiting()}", limit_s)


def _told(holder: subprocess.Popen[bytes]) -> str:
    """What became of it, and what it has said so far."""
    assert holder.stderr is not None
    os.set_blocking(holder.stderr.fileno(), False)
    return f"its process: {holder.poll()}, {(holder.stderr.read() or b'').decode()}"
