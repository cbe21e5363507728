"""One run of a suite, or of some of its tests, with one kernel installed as `python3`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitfusion_pool.ledger.files.pool_folder import DATABASE
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.suites.outcomes import EmptyRun, Outcomes, read_report
from tests.pods.command.pods import CLIENT_SCRIPT, agents_keys
from tests.pods.stream.sides import Keys
from tests.support.place import Place
from tests.support.processes import kill

GPUS = 64
TEST_LIMIT_S = 240
"""For one test: the suites wait up to 60 s for a kernel, on a calm machine."""

SUITE_LIMIT_S = 3600
LEFT_LIMIT_S = 6.0
"""Until a kernel's processes have gone at the latest whose client went without a word."""

PLAIN, OURS = "plain", "ours"


class KernelNotUsed(EmptyRun):
    """The tests ran, but not with our kernel."""


@dataclass
class Result:
    """What one run came to.

    Attributes:
        outcomes: Of the tests.
        requests: How often a kernel asked for a GPU; 0 with plain ipykernel.
        left: Processes, private folders and leases that were still there after `LEFT_LIMIT_S`.
        seconds: How long it took.
    """

    outcomes: Outcomes
    requests: int
    left: list[str]
    seconds: float


class Kernels:
    """The two prefixes in each of which one kernel is `python3`."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self._folder = folder

    def install(self) -> None:
        """Each by its own command."""
        shutil.rmtree(self._folder, ignore_errors=True)
        plain = [self.python, "-m", "ipykernel", "install", "--prefix", self._folder / PLAIN]
        ours = [self.python.with_name("bitfusion-kernel"), "install", "--prefix", self._folder / OURS]
        for command in (plain, [*ours, "--name", "python3", "--display-name", "Python 3 (ipykernel)"]):
            subprocess.run(list(map(str, command)), check=True, capture_output=True)

    def path(self, kernel: str) -> Path:
        """For JUPYTER_PATH, which the suites leave alone; what lies in the environment they hide."""
        return self._folder / kernel / "share" / "jupyter"


def run(
    kernels: Kernels, kernel: str, root: Path, tests: Sequence[str], log: Path, *, in_pods: bool = False
) -> Result:
    """Run tests of the unpacked sdist at `root`; what pytest says goes to `log`.

    With `in_pods` our kernels' IPython runs in namespaces of its own, as in GPU pods.

    Raises:
        EmptyRun: No test ran, or none of them with the kernel that is to be tested.
    """
    begin = time.monotonic()
    with _place() as place:
        pool = Pool(place.pool)
        pool.write(GPUS)
        report = place.root / "report.xml"
        command = [
            *(str(kernels.python), "-m", "pytest", *tests),
            *(f"--junitxml={report}", "-o", "junit_family=xunit1", "-p", "no:cacheprovider"),
            *(f"--timeout={TEST_LIMIT_S}", "--timeout-method=signal"),
        ]
        environment = _environment(place, pool) | {
            "PATH": f"{kernels.python.parent}{os.pathsep}{os.environ['PATH']}",
            "JUPYTER_PATH": str(kernels.path(kernel)),
        }
        heard = place.root / "heard"
        if in_pods and kernel == OURS:
            environment |= _client_of_pods(place.root, heard)
        with log.open("a") as output, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SUITE_LIMIT_S,
            )
        if not report.exists():
            raise EmptyRun(f"pytest wrote no report; see {log}")
        outcomes = read_report(report.read_text())
        left = _left(place)
        requests = _requests(place.pool) + _pods(heard)
    if kernel == OURS and not requests:
        raise KernelNotUsed("no kernel asked for a GPU: the tests ran with another kernel")
    return Result(outcomes, requests, left, time.monotonic() - begin)


@contextlib.contextmanager
def _place() -> Iterator[Place]:
    before = dict(os.environ)
    place = Place()
    place.enter()
    try:
        yield place
    finally:
        place.clear(place.contents())
        place.leave()
        os.environ.clear()
        os.environ.update(before)


def _environment(place: Place, pool: Pool) -> dict[str, str]:
    """A new user's, but for the pool; the suites make Jupyter's folders themselves."""
    home = place.root / "home"
    home.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER_", "IPYTHON", "PYTEST_", "VIRTUAL_ENV"))
    }
    return kept | pool.environment | {"HOME": str(home)}


def _requests(pool: Path) -> int:
    if not (pool / DATABASE).exists():
        return 0
    with contextlib.closing(sqlite3.connect(pool / DATABASE)) as ledger:
        row = ledger.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
    return row[0] if row else 0


def _client_of_pods(folder: Path, heard: Path) -> dict[str, str]:
    """A `bitfusion` whose programs run in namespaces, each behind an agent of its own."""
    keys = folder / "keys"
    keys.mkdir()
    agents_keys(Keys(keys))
    client = folder / "bitfusion"
    client.write_text(CLIENT_SCRIPT)
    client.chmod(0o755)
    return {"BITFUSION_CLIENT": str(client), "PODS_KEYS": str(keys), "PODS_HEARD": str(heard)}


def _pods(heard: Path) -> int:
    file = Path(f"{heard}.agent")
    return file.read_text().count(": listens on port") if file.exists() else 0


def _left(place: Place) -> list[str]:
    end = time.monotonic() + LEFT_LIMIT_S
    while (left := place.contents()) and time.monotonic() < end:
        time.sleep(0.2)
    kill(left.processes)
    return str(left).splitlines() if left else []
