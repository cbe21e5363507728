"""Watching processes with pidfds and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bitfusion_kernel.processes.process_watch import ProcessWatch
from tests.support.machine import scaled

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


def _no_pidfd(pid: int) -> int:
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize("pidfds", [True, False])
def test_a_process_is_seen_alive_signalled_and_gone(monkeypatch: pytest.MonkeyPatch, pidfds: bool) -> None:
    if not pidfds:
        monkeypatch.setattr(os, "pidfd_open", _no_pidfd)
    process = subprocess.Popen(SLEEP, start_new_session=True)
    watch = ProcessWatch(process.pid)
    assert watch.alive
    assert (watch.fd is not None) is pidfds
    watch.kill_group(signal.SIGKILL)
    assert process.wait(scaled(5)) == -9
    assert not watch.alive
    watch.kill_group(signal.SIGKILL)  # nobody is hit who has got the number since
    watch.close()
    watch.close()
    assert not ProcessWatch(process.pid).alive
