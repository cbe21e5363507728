"""The place of one test process: its own runtime, pool and Jupyter folders, and what lies or lives there.

Every process that a test starts inherits the environment variable ``BITFUSION_TEST_SUITE``. Its value is
unique to the test process, so what a test started is found again in ``/proc/<pid>/environ`` wherever it went:
reparented, in a session or a pid namespace of its own. Under pytest-xdist the place of a worker lies in that
of the process which started it: the worker's value begins with that process's value.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from pathlib import Path

from tests.support.pool_leases import held_leases
from tests.support.processes import Process, Strangers, kill, processes_with

MARK = "BITFUSION_TEST_SUITE"
CLUSTER_CACHE = "kubeflow-bitfusion"
"""The folder in the user's cache in which `tests.cluster.binaries` keeps what it has built."""


class Place:
    """The folders of a test process, and the mark that its processes carry.

    Args:
        worker: The name of the worker that this process is.
        around: `address` of the place of the process which started this worker.
    """

    def __init__(self, worker: str = "", around: tuple[str, str] | None = None) -> None:
        if around is None:
            self.mark = f"{uuid.uuid4().hex}/"
            # Short, because the paths of Unix sockets may have 107 bytes only.
            self.root = Path(tempfile.mkdtemp(prefix="bft-", dir="/tmp"))
        else:
            mark, root = around
            self.mark = f"{mark}{worker}/"
            self.root = Path(root) / worker
            self.root.mkdir(mode=0o700)
        self.runtime = self.root / "run"
        self.pool = self.root / "pool"
        self.owner = os.getpid()
        self._strangers = Strangers()

    @property
    def address(self) -> tuple[str, str]:
        """What a worker needs to make its place in this one."""
        return self.mark, str(self.root)

    def enter(self) -> None:
        """Make the folders and point this process, and so all its children, to them."""
        _current.append(self)
        for name in [name for name in os.environ if name.startswith("BITFUSION_")]:
            del os.environ[name]
        self.runtime.mkdir(mode=0o700)
        os.environ[MARK] = self.mark
        os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
        os.environ["BITFUSION_POOL_DIR"] = str(self.pool)
        os.environ["BITFUSION_POOL_GPUS"] = "simulated"  # whatever the machine of the tests has
        os.environ["XDG_STATE_HOME"] = str(self.root / "state")
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            folder = self.root / name.lower()
            folder.mkdir(mode=0o700)
            os.environ[name] = str(folder)
        self._enter_cache()
        # The stock lookups of a developer's machine would change what the tests see.
        os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"

    def _enter_cache(self) -> None:
        """Share what is cached on this machine, but for the folder of jedi, with which IPython completes.

        A kernel that reads a file there while another one writes it completes nothing.
        """
        shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        own = self.root / "cache"
        own.mkdir(mode=0o700)
        try:
            (shared / CLUSTER_CACHE).mkdir(parents=True, exist_ok=True)
            for name in os.listdir(shared):
                if name not in ("jedi", "parso"):
                    (own / name).symlink_to(shared / name)
        except OSError:
            return  # nothing can be shared on this machine
        os.environ["XDG_CACHE_HOME"] = str(own)

    def leave(self) -> None:
        """Remove the folders."""
        if os.getpid() == self.owner:
            shutil.rmtree(self.root, ignore_errors=True)

    def contents(self) -> Contents:
        """What there is now, the places of workers included."""
        processes = processes_with(f"{MARK}={self.mark}", begin_only=True, strangers=self._strangers)
        # multiprocessing's tracker starts once and lives as long as pytest: it belongs to no test.
        ours = {each for each in processes if "multiprocessing.resource_tracker" not in each.command}
        return Contents(ours, set(os.listdir(self.runtime)), held_leases(self.pool))

    def clear(self, contents: Contents) -> None:
        """End these processes and remove these private folders; a lease ends with its process."""
        kill(contents.processes)
        for name in contents.folders:
            path = self.runtime / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


_current: list[Place] = []


def current_place() -> Place:
    """The place that this process has entered."""
    return _current[-1]


class Contents:
    """Processes, private folders and held leases."""

    def __init__(self, processes: set[Process], folders: set[str], leases: set[str]) -> None:
        self.processes = processes
        self.folders = folders
        self.leases = leases

    def __sub__(self, before: Contents) -> Contents:
        known = {(process.pid, process.start) for process in before.processes}
        return Contents(
            {process for process in self.processes if (process.pid, process.start) not in known},
            self.folders - before.folders,
            self.leases - before.leases,
        )

    def __bool__(self) -> bool:
        return bool(self.processes or self.folders or self.leases)

    def __str__(self) -> str:
        return "\n  ".join(
            [
                *sorted(map(str, self.processes)),
                *sorted(f"private folder: {name}" for name in self.folders),
                *sorted(f"lease: {lease}" for lease in self.leases),
            ]
        )


NOTHING = Contents(set(), set(), set())
