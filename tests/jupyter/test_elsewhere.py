"""A `bitfusion` whose program runs elsewhere: other pids, other files, another network, one folder in common.

So a pod runs it (the folder's sockets are mirrored there; here the folder is the same). The kernel gets the
number of a process beside the notebook, which nobody may touch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jupyter.cells import running_cell, wait_for_death
from tests.jupyter.chain import chain, wait_for_no_process
from tests.jupyter.conftest import FIRST_CELL, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.namespaces import as_process_1

POD = """mount -t tmpfs none "$1" && echo $(($2 - 2)) >/proc/sys/kernel/ns_last_pid && shift 2 || exit
"$@" &
wait $!"""
"""Hides a folder, and sees to it that the second process from here on gets a number."""

CLIENT = """#!{python} -IS
import subprocess, sys
words = sys.argv[1:]
if words[0] != "run":
    sys.exit("no such command")
print("[INFO] 2026-11-21T00:00:00Z Requesting GPUs [0] with 16160 MiB of memory from server 0, with version "
      "4.0.0...", flush=True)
sys.exit(subprocess.call({pod!r} + words[words.index("--") + 1 :]))
"""


@pytest.fixture
def bystander(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process beside the notebook, whose number the kernel has where it runs."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True, env={}) as process:
        client = tmp_path / "here" / "bitfusion"
        client.parent.mkdir()
        pod = as_process_1(["unshare", "--net", "sh", "-c", POD, "pod", str(client.parent), str(process.pid)])
        probe = subprocess.run([*pod, "true"], capture_output=True, text=True, check=False)
        if probe.returncode:
            process.kill()
            pytest.skip(f"no namespaces may be made here: {probe.stderr}")
        client.write_text(CLIENT.format(python=sys.executable, pod=pod))
        client.chmod(0o755)
        monkeypatch.setenv("BITFUSION_CLIENT", str(client))
        yield process
        process.kill()


def shut_down(kernel: LiveKernel, pool: Pool) -> None:
    kernel.stop()


def restart(kernel: LiveKernel, pool: Pool) -> None:
    lease = kernel.run("import os; os.environ['BITFUSION_POOL_LEASE']").result
    kernel.restart()
    assert kernel.run("'os' in globals()").result == "False"
    assert kernel.run("import os; os.environ['BITFUSION_POOL_LEASE']").result == lease
    kernel.stop()


def kill_kernel(kernel: LiveKernel, pool: Pool) -> None:
    cell = kernel.client.send("os.kill(os.getpid(), 9)")
    wait_for_death(kernel.client, cell, 10)
    assert "the kernel process was killed by SIGKILL" in cell.error_text
    kernel.wait_for_end(5)


def kill_supervisor(kernel: LiveKernel, pool: Pool) -> None:
    cell = running_cell(kernel.client)
    os.kill(chain(pool, os.getpid())["supervisor"].pid, signal.SIGKILL)
    wait_for_death(kernel.client, cell, 10)
    kernel.wait_for_end(5)


@pytest.mark.parametrize("end", [shut_down, restart, kill_kernel, kill_supervisor])
def test_a_kernel_elsewhere_serves_and_ends_and_nothing_here_is_taken_for_it(
    launch: Launch, pool: Pool, bystander: subprocess.Popen[bytes], end: Callable[[LiveKernel, Pool], None]
) -> None:
    kernel = launch(FIRST_CELL)
    assert kernel.run("import os; os.getpid()").result == str(bystander.pid)

    cell = running_cell(kernel.client)
    kernel.interrupt()
    kernel.client.finish(cell, 10)
    assert cell.error["ename"] == "KeyboardInterrupt"

    question = kernel.client.send("input('name? ')", allow_stdin=True)
    kernel.client.pump(lambda: kernel.client.input_requests, 10, "the question")
    kernel.client.answer("ada")
    assert kernel.client.finish(question).result == "'ada'"

    assert kernel.run("1\n%bitfusion").stream().startswith("Kernel     running on its GPU")
    said = kernel.run("1\n%bitfusion list_gpus").stream("stderr")
    assert (
        "cannot be run by this kernel: No such file or directory. %bitfusion list_gpus in a cell of" in said
    )

    end(kernel, pool)
    wait_for_no_process(pool, 3)
    assert bystander.poll() is None
