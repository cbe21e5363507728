"""A wrapper and a kernel whose supervisor was killed are ended, and reaped by the proxy, their new parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_kernel.processes.reaper import end_orphan

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
DEAF = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
]


@pytest.mark.parametrize("launched", [True, False])
def test_an_orphan_is_ended_even_if_it_ignores_sigterm_and_leaves_no_zombie(launched: bool) -> None:
    wrapper = subprocess.Popen(DEAF, start_new_session=True, stdout=subprocess.PIPE)
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == b"1\n"
    family = [wrapper]
    pids: tuple[int | None, int | None] = (None, None)
    if launched:
        kernel, launcher = subprocess.Popen(SLEEP, start_new_session=True), subprocess.Popen(["true"])
        family, pids = [wrapper, kernel, launcher], (kernel.pid, launcher.pid)
    end_orphan(wrapper.pid, *pids, granted=launched, patience=0.1)
    assert [process.args for process in family if Path(f"/proc/{process.pid}").exists()] == []
    for process in family:
        process.wait()
    wrapper.stdout.close()
