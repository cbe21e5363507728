"""What every test of this suite stands on: a place of its own, and nothing left behind.

Every process that a test starts inherits the environment variable ``BITFUSION_TEST_SUITE`` with a value
that is unique to this run, so it is found again in ``/proc/<pid>/environ`` wherever it went: reparented,
in a session or a pid namespace of its own. After each test, and once more at the end, nothing with that
mark may be alive that was not there before, no private folder may lie in the run's ``XDG_RUNTIME_DIR``,
and no lease may be held in the run's pool. (In a pool that a test has for itself a lease lives
as long as its process, which is looked for, or is thrown away with the pool's folder.)

Helpers of a room are imported as ``tests.<room>.<helper>``.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest_plugins = [
    # The fixture `cluster`. Its processes live as long as the run: they don't carry the mark, and it looks for
    # leftovers itself.
    "tests.cluster.plugin",
    "tests.support.no_skips",
]

MARK = "BITFUSION_TEST_SUITE"
# A kernel's chain has 5 s to go while a server lives that might restart it; more on a busy machine.
GRACE_S = 8.0


class Leftover(NamedTuple):
    """One process that outlived its test."""

    pid: int
    start: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command}"


class Place:
    """The folders of this run, and the mark its processes carry."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        # Short, because the paths of Unix sockets may have 107 bytes only.
        self.root = Path(tempfile.mkdtemp(prefix="bft-", dir="/tmp"))
        self.runtime = self.root / "run"
        self.pool = self.root / "pool"
        self.owner = os.getpid()

    def enter(self) -> None:
        """Make the folders and point this process, and so all its children, to them."""
        for name in [name for name in os.environ if name.startswith("BITFUSION_")]:
            del os.environ[name]
        self.runtime.mkdir(mode=0o700)
        os.environ[MARK] = self.mark
        os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
        os.environ["BITFUSION_POOL_DIR"] = str(self.pool)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            folder = self.root / name.lower()
            folder.mkdir(mode=0o700)
            os.environ[name] = str(folder)
        # The stock lookups of a developer's machine would change what the tests see.
        os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"

    def leave(self) -> None:
        if os.getpid() == self.owner:
            shutil.rmtree(self.root, ignore_errors=True)

    def processes(self) -> set[Leftover]:
        """Every living process that carries the mark, this one and multiprocessing's tracker aside."""
        mark = f"{MARK}={self.mark}".encode()
        found = set()
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark not in file.read().split(b"\0"):
                        continue
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue  # gone meanwhile, or another user's
            # Starts once and lives as long as pytest: it belongs to the run, not to a test.
            if fields[0] != b"Z" and "multiprocessing.resource_tracker" not in command:
                found.add(Leftover(int(name), fields[19].decode(), command[:300]))
        return found

    def private_folders(self) -> set[str]:
        return set(os.listdir(self.runtime))

    def leases(self) -> set[str]:
        """Who holds GPUs in the run's pool."""
        from tests.support.pool_leases import held_leases

        return held_leases(self.pool)


_place_key = pytest.StashKey[Place]()


def pytest_configure(config: pytest.Config) -> None:
    # Started in the background, or by nohup, everything under us would ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    place = Place()
    place.enter()
    config.stash[_place_key] = place
    from hypothesis import settings

    # Time limits are pytest-timeout's; a database would make one run depend on another.
    settings.register_profile("suite", deadline=None, database=None)
    settings.load_profile("suite")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_place_key].leave()


def pytest_sessionfinish(session: pytest.Session) -> None:
    place = session.config.stash[_place_key]
    complaints = _wait_until_clean(place, set(), set(), set())
    if complaints:
        print("\nleft behind by the whole run:\n  " + "\n  ".join(complaints))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, a private folder or a lease, and remove what it left.

    Fixtures of a wider scope are set up before this one, so their servers are not the test's.
    """
    place = request.config.stash[_place_key]
    before = place.processes(), place.private_folders(), place.leases()
    yield
    complaints = _wait_until_clean(place, *before)
    if complaints:
        pytest.fail("the test left behind:\n  " + "\n  ".join(complaints), pytrace=False)


@pytest.fixture
def pool_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty pool folder of the test's own, which its processes use."""
    folder = tmp_path / "pool"
    monkeypatch.setenv("BITFUSION_POOL_DIR", str(folder))
    return folder


def _wait_until_clean(
    place: Place, processes: set[Leftover], folders: set[str], leases: set[str]
) -> list[str]:
    deadline = time.monotonic() + GRACE_S
    pause = 0.005
    while True:
        alive = place.processes() - processes
        lying = place.private_folders() - folders
        held = place.leases() - leases
        if not (alive or lying or held):
            return []
        if time.monotonic() > deadline:
            break
        time.sleep(pause)
        pause = min(pause * 2, 0.2)
    for process in alive:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for name in lying:
        path = place.runtime / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return sorted(
        [str(process) for process in alive]
        + [f"private folder: {name}" for name in lying]
        + [f"lease: {lease}" for lease in held]
    )
