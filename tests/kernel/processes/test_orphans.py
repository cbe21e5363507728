"""A wrapper and a kernel whose supervisor was killed are ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bitfusion_kernel.processes.orphans import end_orphan
from tests.support.machine import scaled

SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
DEAF = [
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
]


@pytest.mark.parametrize("with_kernel", [True, False])
def test_an_orphan_is_ended_even_if_it_ignores_sigterm(with_kernel: bool) -> None:
    wrapper = subprocess.Popen(DEAF, start_new_session=True, stdout=subprocess.PIPE)
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == b"1\n"
    kernel = subprocess.Popen(SLEEP, start_new_session=True) if with_kernel else None
    end_orphan(wrapper.pid, kernel.pid if kernel else None, patience=0.1)
    assert wrapper.wait(scaled(5)) == -9
    wrapper.stdout.close()
    assert kernel is None or kernel.wait(scaled(5)) == -9
