"""A user whose files name a service on the network, and what a test wants to know of the user's commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.pool.pool_client import PoolClient
from tests.support.processes import read_process
from tests.support.waiting import wait_until

SLEEPER = ("run", "-n", "1", "--", "sh", "-c", "echo $$; exec sleep 600")
"""The words of a command whose program says its number and then does nothing."""


def network_user(client: PoolClient) -> PoolClient:
    """The user of `client`, for whom no pool of their own is named."""
    client.environ.pop("BITFUSION_POOL_DIR")
    client.environ.pop("BITFUSION_POOL", None)
    return client


def home_of(client: PoolClient) -> Path:
    return Path(client.environ["HOME"])


def program_of(process: subprocess.Popen[str]) -> int:
    """The number that its program says first."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def keeper_of(wrapper: int, but: int = 0) -> int:
    """The keeper of this wrapper: the child that leads a session of its own, another than `but`."""

    def look() -> int | None:
        for name in filter(str.isdigit, os.listdir("/proc")):
            found = read_process(int(name))
            if found and found.parent == wrapper and found.session == found.pid != but:
                return found.pid
        return None

    return wait_until(look, "the keeper")
