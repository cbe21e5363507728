"""`bitfusion run` of a test, its pod a namespace of this machine behind a network that the test cuts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pods.command.relay import Relay
from tests.pods.stream.sides import CLIENT, POD, Keys
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]


CLIENT_SCRIPT = f"""#!/bin/sh
PYTHONPATH={ROOT} exec {sys.executable} {ROOT}/tests/pods/command/run_in_namespace.py "$@"
"""
"""A `bitfusion` that a kernel can be told of, wherever it runs: there may be another `tests`."""


def agents_keys(keys: Keys) -> None:
    """The folder of keys that a pod's agent has."""
    agents = keys.folder / "agent"
    if not agents.exists():
        agents.mkdir()
        for name in ("tls.key", "tls.crt"):
            (agents / name).write_bytes((keys.folder / POD / name).read_bytes())
        (agents / "client.crt").write_bytes((keys.folder / CLIENT / "tls.crt").read_bytes())


class Pods:
    """`bitfusion run` of a test, through a relay that the test cuts."""

    def __init__(self, keys: Keys, base: Path) -> None:
        agents_keys(keys)
        self.run_folder = Path(tempfile.mkdtemp())  # of a short path, for sockets
        self._agent_port = free_port()
        self.relay = Relay(self._agent_port)
        self.heard_file = base / "heard"
        self.environment = {
            "PODS_KEYS": str(keys.folder),
            "PODS_PORT": str(self.relay.port),
            "PODS_AGENT_PORT": str(self._agent_port),
            "PODS_HEARD": str(self.heard_file),
            "XDG_RUNTIME_DIR": str(self.run_folder),
            "PYTHONPATH": str(ROOT),
        }

    def command(self, *program: str) -> list[str]:
        """`bitfusion run`, to be started with `environment` in ROOT."""
        return [sys.executable, "-m", "tests.pods.command.run_in_namespace", "run", "-n", "1", "--", *program]

    def start(self, *program: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*program),
            env=os.environ | self.environment,
            cwd=ROOT,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        self.relay.close()
        self.run_folder.rmdir()  # nothing is left in it

    def heard(self) -> list[str]:
        return self.heard_file.read_text().splitlines() if self.heard_file.exists() else []

    def log(self) -> str:
        file = Path(f"{self.heard_file}.agent")
        return file.read_text() if file.exists() else ""


@contextmanager
def pods_in(base: Path) -> Iterator[Pods]:
    """Those of one test, with keys of their own."""
    folder = base / "keys"
    folder.mkdir()
    made = Pods(Keys(folder), base)
    yield made
    made.close()
