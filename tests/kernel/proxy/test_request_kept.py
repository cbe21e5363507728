"""What `%bitfusion request` asked for outlives the proxy if another one follows it, and only then."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.kernel.proxy_harness import ProxyHarness, StartProxy
from tests.support.machine import scaled


def kept(proxy: ProxyHarness) -> list[Path]:
    return sorted((proxy.folder / "state").rglob("*.json"))


@pytest.mark.parametrize(("restart", "files"), [(True, 1), (False, 0)])
def test_a_shutdown_forgets_it_unless_it_is_a_restart(proxy: StartProxy, restart: bool, files: int) -> None:
    harness = proxy()
    assert harness.printed(harness.cell("%bitfusion request -n 2")).startswith(
        "The next cell asks for 2 GPUs."
    )
    assert len(kept(harness)) == 1
    harness.send("shutdown_request", on="control", restart=restart)
    harness.process.wait(scaled(10))
    assert len(kept(harness)) == files


def test_a_death_forgets_nothing(proxy: StartProxy) -> None:
    harness = proxy()
    harness.printed(harness.cell("%bitfusion request -n 2"))
    harness.process.send_signal(signal.SIGKILL)
    harness.process.wait(scaled(10))
    assert len(kept(harness)) == 1


def test_a_state_folder_that_cannot_be_written_is_told_and_the_size_holds(proxy: StartProxy) -> None:
    harness = proxy()
    (harness.folder / "state").write_text("a file, not a folder")
    said = harness.printed(harness.cell("%bitfusion request -n 2\n%bitfusion request"))
    assert said.splitlines() == [
        "The next cell asks for 2 GPUs.",
        f"It could not be kept for a restart (Not a directory: {harness.folder}/state/bitfusion-kernel).",
        "The next start asks for 2 GPUs.",
    ]
