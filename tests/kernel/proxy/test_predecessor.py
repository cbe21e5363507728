"""Two proxies with one connection file: what the second says beside the first, and after another version."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernel.proxy_harness import ENTRY, WAIT_FOR_EVER, ProxyHarness, StartProxy
from tests.support.machine import scaled
from tests.support.processes import wait_until_gone
from tests.support.waiting import wait_until

PACKAGES = ("bitfusion_client", "bitfusion_kernel")


def start_again(harness: ProxyHarness) -> subprocess.Popen[str]:
    """Another proxy of this version with the same connection file, as Jupyter starts one at a restart."""
    argv = [*harness.argv[:3], str(ENTRY), *harness.argv[4:]]
    return subprocess.Popen(argv, env=harness.environ, stderr=subprocess.PIPE, text=True)


def test_a_second_one_beside_the_first_says_why_it_ends_and_the_first_goes_on(proxy: StartProxy) -> None:
    harness = proxy()
    cell = harness.cell("1")
    harness.shown(cell)
    second = start_again(harness)
    _, said = second.communicate(timeout=scaled(20))
    assert second.returncode == 1
    assert said == (
        "bitfusion_kernel: another kernel with the key of this connection file is running; shut that one "
        "down, or start this one with a connection file of its own\n"
    )
    assert harness.shown(cell, "Position 1 of 2")


@pytest.fixture
def another_version(tmp_path: Path) -> Path:
    """An installation whose processes speak of another version to each other."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ENTRY.parents[1] / name, tmp_path / name, ignore=ignored)
    messages = tmp_path / "bitfusion_kernel/processes/messages.py"
    text = messages.read_text()
    assert "\nVERSION = " in text
    messages.write_text(text.replace("\nVERSION = ", "\nVERSION = 1000 + "))
    return tmp_path / "bitfusion_kernel" / ENTRY.name


def test_at_a_restart_what_another_version_keeps_is_given_back_and_told(
    proxy: StartProxy, another_version: Path, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    waits = f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n{WAIT_FOR_EVER}"
    harness = proxy(waits, entry=another_version)
    harness.shown(harness.cell("1"), "Position 1 of 2")
    kept = int(wait_until(pid.read_text, "the wrapper"))
    harness.send("shutdown_request", on="control", restart=True)
    harness.process.wait(scaled(10))
    second = harness.process = start_again(harness)  # type: ignore[assignment]  # its stderr is text
    assert second.stderr is not None
    assert second.stderr.readline() == (
        "bitfusion_kernel: What this kernel held before its restart is given back: another version of "
        "kubeflow-bitfusion kept it.\n"
    )
    wait_until_gone(kept)
    second.stderr.close()
