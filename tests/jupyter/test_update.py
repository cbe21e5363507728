"""The package is updated, or removed, under kernels that run: they go on with what they have loaded."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bitfusion_kernel
from bitfusion_kernel.proxy import late_imports
from tests.jupyter.cells import running_cell, wait_for_death, waiting_cell
from tests.jupyter.chain import chain, wait_for_no_process
from tests.jupyter.embedded_pool import MEMORY_MIB, Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

ROOT = Path(bitfusion_kernel.__file__).parents[1]
PACKAGES = ("bitfusion_client", "bitfusion_kernel", "bitfusion_pool")
OF_LAUNCHERS = (
    *("kernel_guard", "kernel_process", "kernel_start", "launcher"),
    *("message_connection", "messages", "process_watch", "reaper", "work_watch"),
)
OF_THE_MAGIC = ("simulated",)

DEVICES = "import json, os\n[d['memory_mib'] for d in json.loads(os.environ['BITFUSION_POOL_DEVICES'])]"


class Installation:
    """A copy of the package in a folder of its own, and a kernelspec for it."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site"
        self.put()
        spec = folder / "share" / "jupyter" / "kernels" / "copy"
        spec.mkdir(parents=True)
        entry = str(self.site / "bitfusion_kernel" / "__main__.py")
        argv = [sys.executable, "-I", "-S", entry, "-f", "{connection_file}", "--bitfusion-partial=0.5"]
        kernel = {"argv": argv, "display_name": "copy", "language": "python", "interrupt_mode": "message"}
        (spec / "kernel.json").write_text(json.dumps(kernel))

    def put(self) -> None:
        """Install it, as it is in this checkout."""
        self.remove()
        for name in PACKAGES:
            shutil.copytree(ROOT / name, self.site / name, ignore=shutil.ignore_patterns("__pycache__"))

    def remove(self) -> None:
        """Remove the files, as `pip uninstall` does."""
        shutil.rmtree(self.site, ignore_errors=True)

    def update(self) -> None:
        """Replace the files by those of a next version, none of which a proxy that runs can import.

        What starts anew works: the launcher, the magic in its kernel, the `bitfusion` command.
        """
        self.put()
        for path in (self.site / "bitfusion_kernel").rglob("*.py"):
            part, module = path.parent.name, path.stem
            starts_anew = part in ("bitfusion_kernel", "magic") or module in (*OF_LAUNCHERS, *OF_THE_MAGIC)
            if not starts_anew and module != "__init__":
                path.write_text("raise ImportError('this is a file of the next version')\n")

    def wait_until_loaded(self) -> None:
        """Until a proxy that runs has all its modules: each that it imports is compiled into the copy."""
        files = [self.site.joinpath(*name.split(".")).with_suffix(".py") for name in late_imports.MODULES]
        compiled = [Path(importlib.util.cache_from_source(str(file))) for file in files]
        wait_until(lambda: all(file.exists() for file in compiled), "all modules", 30)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return Installation(tmp_path)


@pytest.fixture
def start(installed: Installation, pool: Pool) -> Iterator[Callable[[], LiveKernel]]:
    """Starts a kernel of that installation; it has loaded its modules when this returns."""
    started: list[LiveKernel] = []

    def start_one() -> LiveKernel:
        kernel = LiveKernel("copy", env=os.environ | {"PYTHONPATH": str(installed.site)})
        started.append(kernel)
        kernel.connect()
        installed.wait_until_loaded()
        return kernel

    yield start_one
    for kernel in started:
        kernel.stop()


Start = Callable[[], LiveKernel]


def test_a_kernel_that_was_not_used_before_the_update_can_be_used(
    start: Start, installed: Installation
) -> None:
    kernel = start()
    installed.update()
    assert "no GPU; the next cell asks for one" in kernel.run("%bitfusion").stream()
    assert kernel.run("6 * 7").result == "42"
    assert "Held for" in kernel.run("x = 1\n%bitfusion").stream()


def test_a_kernel_whose_environment_is_gone_at_its_first_cell_says_so_and_starts_in_the_next(
    start: Start, installed: Installation
) -> None:
    kernel = start()
    installed.remove()
    cell = kernel.run("1")
    assert "EnvironmentGone" in cell.error_text
    assert f"Answer: {installed.site}/bitfusion_kernel/" in cell.error_text
    assert " no longer exists" in cell.error_text
    installed.put()
    assert kernel.run("6 * 7").result == "42"


def test_a_wait_that_began_before_the_update_can_be_cancelled_and_begun_again(
    start: Start, installed: Installation, pool: Pool
) -> None:
    with pool.held() as holder:
        kernel = start()
        waiting = waiting_cell(kernel.client)
        installed.update()
        kernel.interrupt()
        assert "WaitCancelled" in kernel.client.finish(waiting).error_text
        again = waiting_cell(kernel.client, "6 * 7")
        pool.end(holder)
        assert kernel.client.finish(again).result == "42"


def test_a_kernel_that_runs_is_interrupted_asked_and_restarted_after_the_update(
    start: Start, installed: Installation
) -> None:
    kernel = start()
    running = running_cell(kernel.client)
    installed.update()
    kernel.interrupt()
    assert "KeyboardInterrupt" in kernel.client.finish(running).error_text
    (table,) = kernel.run("%bitfusion pool").of("display_data")
    assert "GPU" in table["content"]["data"]["text/plain"]
    assert "The new size is 1 GPU × 25 %." in kernel.run("%bitfusion request -p 0.25").stream()
    installed.put()  # a version whose proxy can start
    kernel.restart()
    assert kernel.run(DEVICES).result == f"[{MEMORY_MIB // 4}]"


def test_a_kernel_that_dies_after_the_update_says_so(
    start: Start, installed: Installation, pool: Pool
) -> None:
    kernel = start()
    running = running_cell(kernel.client)
    installed.update()
    os.kill(chain(pool, os.getpid())["kernel"].pid, signal.SIGKILL)
    wait_for_death(kernel.client, running, 5)
    assert "The kernel has died" in running.error_text


def test_a_kernel_whose_package_is_removed_runs_on_and_gives_its_gpu_back(
    start: Start, installed: Installation, pool: Pool
) -> None:
    kernel = start()
    running = running_cell(kernel.client)
    installed.remove()
    kernel.interrupt()
    kernel.client.finish(running)
    assert kernel.run("6 * 7").result == "42"
    assert "Held for" in kernel.run("%bitfusion").stream()
    kernel.stop()
    wait_for_no_process(pool, 5)
    pool.wait_until_free(5)
