"""What a cell leaves running when its kernel is restarted or shut down, beside what a plain kernel leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jupyter.conftest import ALL, PLAIN, Launch
from tests.jupyter.embedded_pool import Pool
from tests.support.processes import read_process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

BY_THE_SHELL = "import os; os.system('nohup sleep 300 >/dev/null 2>&1 & echo $! >{pid}')"
BY_POPEN = "import subprocess; open('{pid}', 'w').write(str(subprocess.Popen(['sleep', '300']).pid))"
BY_SETSID = BY_THE_SHELL.replace("nohup", "setsid nohup")
IN_A_SESSION = BY_POPEN.replace("'300']", "'300'], start_new_session=True")
ON_A_GPU = IN_A_SESSION.replace("['sleep'", "['bitfusion', 'run', '-n', '1', '--', 'sleep'")


class LeftRunning:
    """The program that a cell has started, once it has; it ends with the test at the latest."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "pid"

    def code(self, how: str) -> str:
        return how.format(pid=self._file)

    @property
    def pid(self) -> int:
        return int(self._file.read_text())

    @property
    def has_begun(self) -> bool:
        """Not before it is itself: until then an interrupt may end what is to become it."""
        process = read_process(self.pid)
        return process is not None and process.command == "sleep 300"

    @property
    def runs(self) -> bool:
        return read_process(self.pid) is not None

    def end(self) -> None:
        if self._file.exists() and self.runs:
            os.kill(self.pid, signal.SIGTERM)
            wait_until(lambda: not self.runs, "the end of what a cell has left running", 5)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[LeftRunning]:
    made = LeftRunning(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("end", ["restart", "shutdown"])
@pytest.mark.parametrize(
    ("how", "goes_on", "goes_on_with_plain"),
    [
        pytest.param(BY_THE_SHELL, False, True, id="nohup"),
        pytest.param(BY_POPEN, False, False, id="Popen"),
        pytest.param(IN_A_SESSION, True, True, id="start_new_session"),
        pytest.param(BY_SETSID, True, True, id="setsid"),
    ],
)
@pytest.mark.parametrize("name", ALL)
def test_only_what_has_a_session_of_its_own_survives_a_restart_and_it_ends_with_the_lease(
    launch: Launch,
    pool: Pool,
    program: LeftRunning,
    name: str,
    how: str,
    goes_on: bool,
    goes_on_with_plain: bool,
    end: str,
) -> None:
    # After half of its 5 s Jupyter ends a slow kernel's whole process group.
    kernel = launch(name, {"shutdown_wait_time": 60.0})
    assert kernel.run(program.code(how)).status == "ok"
    wait_until(lambda: program.has_begun, "its start")
    if end == "restart":
        kernel.restart()
        assert kernel.run("6 * 7").result == "42", "on the only GPU of the pool"
    else:
        kernel.stop()
        pool.wait_until_free(2)
    if goes_on_with_plain if name == PLAIN else goes_on and end == "restart":
        assert program.runs
    elif name == PLAIN or end == "restart":
        wait_until(lambda: not program.runs, "its end", 2)
    else:
        assert not program.runs, "its end comes before that of the lease"


def test_a_program_with_a_gpu_of_its_own_goes_on_and_keeps_that(
    launch: Launch, pool: Pool, program: LeftRunning
) -> None:
    pool.write(gpus=2)
    kernel = launch("bitfusion")
    kernel.run(program.code(ON_A_GPU))
    wait_until(lambda: len(pool.leases()) == 2, "its lease beside the kernel's")
    kernel.restart()
    assert kernel.run("6 * 7").result == "42"
    assert program.runs
    kernel.stop()
    wait_until(lambda: len(pool.leases()) == 1, "the kernel's lease to end", 5)
    assert pool.leases()[0]["pid"] == program.pid
