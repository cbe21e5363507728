"""What the tests of the service share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pool.service.running_service import RunningService


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that everybody may enter, with a short path: a socket's has at most 96 bytes."""
    path = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def service(base: Path) -> Iterator[RunningService]:
    """A service with one server, two simulated GPUs."""
    running = RunningService(base)
    yield running.start()
    running.end()
