"""Kernels started as Jupyter starts them, on a pool of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.browser.chromium import chromium_path
from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import Server
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled

PLAIN = "python3"
FIRST_CELL = "bitfusion"
START = "bitfusion-start"
HALF = "bitfusion-half"

OURS = [
    pytest.param(FIRST_CELL, id="first_cell"),
    pytest.param(START, id="start", marks=pytest.mark.long),
]
"""Those that start with their GPU do the same with less between: with the long tests."""
# The plain one shows that a test asks for what Jupyter promises: once for each test and version of ipykernel.
# And where a kernel has its GPU, it is the same one, however it came by it.
ALL = [
    pytest.param(FIRST_CELL, id="first_cell"),
    *(
        pytest.param(name, id=id_, marks=[pytest.mark.long, pytest.mark.apart])
        for name, id_ in ((PLAIN, "plain"), (START, "start"))
    ),
]

SPECS = {
    FIRST_CELL: [],
    START: ["--acquire", "start", "--display-name", "Bitfusion at start"],
    HALF: ["-p", "0.5"],
}

Launch = Callable[..., LiveKernel]

KILL_ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
"""Rounds of each case of the tests marked `rounds`."""


def bitfusion_kernel_command() -> list[str]:
    """The public command, as its console script would run it."""
    return [sys.executable, "-c", "import sys; from bitfusion_kernel.cli import main; sys.exit(main())"]


@pytest.fixture(scope="session")
def kernelspecs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kernels under test, installed by their own command into a prefix of this run."""
    prefix = tmp_path_factory.mktemp("prefix")
    for name, options in SPECS.items():
        subprocess.run(
            [*bitfusion_kernel_command(), "install", "--prefix", str(prefix), "--name", name, *options],
            check=True,
            capture_output=True,
            timeout=scaled(60),
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        yield prefix


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """A pool of one server with one simulated GPU, used by this test only."""
    made = Pool(tmp_path / "pool")
    made.write(gpus=1)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def launch(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Launch]:
    """Starts kernels by name; they end with the test."""
    started: list[LiveKernel] = []

    def start(name: str, options: dict[str, Any] | None = None, **kwargs: Any) -> LiveKernel:
        if name != PLAIN:
            request.getfixturevalue("kernelspecs")
        kernel = LiveKernel(name, options, **kwargs)
        started.append(kernel)
        return kernel

    yield start
    for kernel in started:
        kernel.stop()


@pytest.fixture
def server(kernelspecs: Path, pool: Pool, tmp_path: Path) -> Iterator[Server]:
    """A real Jupyter server, whose restarter watches; nothing stays behind when it has stopped."""
    server = Server(tmp_path)
    yield server
    server.stop()
    wait_for_no_process(pool, 6)


@pytest.fixture(params=ALL)
def kernel(request: pytest.FixtureRequest, launch: Launch) -> LiveKernel:
    """A new kernel: the plain one for reference, and ours in both ways of taking a GPU."""
    kernel = launch(request.param)
    kernel.connect()
    return kernel


@pytest.fixture(scope="session")
def tool_environment(kernelspecs: Path) -> dict[str, str]:
    """The environment for a tool started as a process of its own."""
    return dict(os.environ)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The installed browser."""
    return chromium_path()
