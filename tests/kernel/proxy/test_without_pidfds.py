"""A Python that knows no pidfds, as builds on old Linux headers: every process of the chain does without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bitfusion_kernel.processes.supervisor import KEPT_FOR_RESTARTER
from tests.kernel.proxy_harness import GRANT, StartProxy
from tests.support.machine import scaled
from tests.support.processes import wait_until_gone

WITHOUT_PIDFDS = (
    "import os, runpy, signal, sys; del os.pidfd_open, signal.pidfd_send_signal; "
    "sys.executable = sys.argv[1]; sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture
def old_python(tmp_path: Path) -> str:
    """An environment whose Python has no pidfds under `-I -S`; kernels run on the usual one."""
    (tmp_path / "pyvenv.cfg").touch()
    (tmp_path / "lib").symlink_to(Path(sys.prefix, "lib"))
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = -I ]; then shift 2; set -- -I -S -c "{WITHOUT_PIDFDS}" "$0" "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return str(python)


@pytest.fixture
def start(old_python: str, proxy: StartProxy) -> StartProxy:
    return partial(proxy, GRANT, python=old_python)


def test_this_python_has_none(old_python: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(hasattr(os, 'pidfd_open'), sys.executable)")
    said = subprocess.run([old_python, "-I", "-S", str(script)], capture_output=True, text=True, check=True)
    assert said.stdout == f"False {old_python}\n"


def test_a_kernels_whole_life(start: StartProxy) -> None:
    harness = start()
    assert harness.printed(harness.cell("print(6 * 7)")) == "42\n"
    request = harness.send("shutdown_request", on="control", restart=False)
    assert harness.reply(request, on="control")["status"] == "ok"
    assert harness.process.wait(scaled(5)) == 0
    # ipykernel 7.3 prints a traceback of its own when it is asked early
    assert "bitfusion_kernel" not in harness.stderr.read_text()


@pytest.mark.parametrize("victim", ["proxy", "supervisor", "wrapper", "launcher", "kernel"])
def test_when_one_process_is_killed_all_end(start: StartProxy, victim: str) -> None:
    harness = start()
    cell = harness.cell(
        "import os\n"
        "def parent(pid): return int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
        "chain = [os.getpid()]\n"
        "while len(chain) < 5: chain.append(parent(chain[-1]))\n"
        "print(*chain)"
    )
    pids = [int(word) for word in harness.printed(cell).split()]
    assert pids[-1] == harness.process.pid
    harness.cell("import time; time.sleep(600)")
    harness.on_iopub(lambda m: m.type == "execute_input")
    names = ("kernel", "launcher", "wrapper", "supervisor", "proxy")
    os.kill(pids[names.index(victim)], signal.SIGKILL)
    harness.process.wait(scaled(5))
    wait_until_gone(*pids[:-1], limit_s=KEPT_FOR_RESTARTER + 3)


def test_when_jupyter_is_killed_all_end(start: StartProxy, tmp_path: Path) -> None:
    harness = start()
    harness.process.terminate()
    harness.process.wait()
    script = (
        "import os, subprocess, sys, time\n"
        "proxy = subprocess.Popen(sys.argv[1:], env=dict(os.environ, JPY_PARENT_PID=str(os.getpid())))\n"
        "print(proxy.pid, flush=True); time.sleep(600)"
    )
    jupyter = subprocess.Popen([sys.executable, "-c", script, *harness.argv], stdout=subprocess.PIPE)
    assert jupyter.stdout is not None
    with jupyter.stdout:
        proxy = int(jupyter.stdout.readline())
        assert harness.printed(harness.cell("print(6 * 7)")) == "42\n"
        jupyter.kill()
        jupyter.wait()
        wait_until_gone(proxy)
