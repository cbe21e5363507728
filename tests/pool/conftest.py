"""What the pool's tests share."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.holders import Holders
from tests.pool.pool_client import PoolClient


@pytest.fixture
def client(pool_folder: Path, tmp_path: Path) -> PoolClient:
    """Commands on an empty pool: one server, two simulated GPUs with 16160 MiB."""
    home = tmp_path / "home"
    home.mkdir()
    return PoolClient(pool_folder, home)


@pytest.fixture
def ledger(client: PoolClient) -> Iterator[Ledger]:
    with client.ledger() as ledger:
        yield ledger


@pytest.fixture
def holders(ledger: Ledger) -> Iterator[Holders]:
    holders = Holders(ledger)
    yield holders
    holders.end()


@pytest.fixture
def everything_taken(client: PoolClient) -> Iterator[subprocess.Popen[str]]:
    """Somebody called boss.ipynb holds both GPUs until the test ends or kills it."""
    process = client.start("run", "-n", "2", "--", "sleep", "600", env={"BITFUSION_LABEL": "boss.ipynb"})
    client.until_held()
    yield process
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()
