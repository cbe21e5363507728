"""The doctor's checks of machine and Python: folder for sockets, pidfds, process 1, compiled bytecode."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec

from bitfusion_kernel.install.finding import FAIL, PASS, WARN, Finding
from bitfusion_kernel.processes import private_folder
from bitfusion_kernel.processes.process_watch import pidfds_work, pids, stat

PACKAGES = (
    *("bitfusion_client", "bitfusion_kernel", "bitfusion_pool"),
    *("ipykernel", "IPython", "jupyter_client", "tornado", "traitlets", "zmq"),
)
"""Packages that the processes of one kernel import at every start."""

AN_INIT_REAPS = (
    "start the container with an init: `docker run --init`, tini as the image's entry point, or in "
    "Kubernetes `shareProcessNamespace: true`"
)

REAPED_LIMIT = 5.0
"""Seconds an init may take to reap; some look for orphans only every other second."""

_PAUSE = 0.02


def check_private_folder() -> Finding:
    """Whether a proxy could make its folder for sockets."""
    try:
        path = private_folder.create(os.environ)
    except OSError as error:
        next_step = "make /tmp writable or set XDG_RUNTIME_DIR to a short path of yours"
        return Finding(FAIL, "private folder", str(error), next_step)
    private_folder.remove(path)
    return Finding(PASS, "private folder", f"sockets fit into {os.path.dirname(path)}")


def check_pidfds() -> Finding:
    """Whether processes can be watched by pidfds."""
    subject = "watching processes"
    if pidfds_work():
        return Finding(PASS, subject, "by pidfds")
    if hasattr(os, "pidfd_open"):
        because, next_step = "this Linux (before 5.3) or sandbox refuses pidfds", "a newer Linux has them"
    else:
        because = "this Python was built without os.pidfd_open"
        next_step = "a newer build of the same Python has it"
    found = (
        f"{because}: processes are looked at up to 50 times a second, and the end of Jupyter is seen up to "
        "1 s late"
    )
    return Finding(WARN, subject, found, f"nothing breaks; {next_step}")


def check_process_1() -> Finding:
    """Whether orphans are reaped, as an init does; a Jupyter that is process 1 does not.

    Seen by those that are there, otherwise by making one.
    """
    subject = "process 1"
    zombies = [pid for pid in pids() if (stat(pid) or ())[1:3] == ["Z", "1"]]
    orphan = zombies[0] if zombies else _make_orphan()
    found = stat(orphan)
    adopter = 1 if found is None else int(found[2])
    name = process[0] if (process := stat(adopter)) else "unknown"
    deadline = time.monotonic() + REAPED_LIMIT
    while stat(orphan) is not None:
        if time.monotonic() > deadline:
            problem = f"process {adopter} ({name}) does not reap orphans: a killed kernel leaves a zombie"
            return Finding(WARN, subject, problem, AN_INIT_REAPS)
        time.sleep(_PAUSE)
    return Finding(PASS, subject, f"orphans are reaped by process {adopter} ({name})")


def check_bytecode(packages: Iterable[str] = PACKAGES) -> Finding:
    """Whether Python keeps the packages compiled, or each process of a kernel compiles every import anew.

    The second is so where nothing was compiled at install and Python must not or can't write it later:
    PYTHONDONTWRITEBYTECODE is set, as most container images do, or the folder belongs to somebody else.
    """
    subject = "bytecode"
    found = {name: spec.origin for name in packages if (spec := find_spec(name)) and spec.origin}
    missing = {name: source for name, source in found.items() if not has_bytecode(source)}
    forbidden = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if not forbidden:
        missing = {name: source for name, source in missing.items() if not _can_be_written(source)}
    if not missing:
        return Finding(PASS, subject, "packages are compiled, or will be when they are first used")
    because = "PYTHONDONTWRITEBYTECODE is set" if forbidden else "their folders are not writable"
    return Finding(
        WARN,
        subject,
        f"{', '.join(missing)} have none and {because}: every process compiles them anew at its start",
        f"run `{compile_command(missing.values())}`" + ("" if forbidden else " as the owner of the folders"),
    )


def has_bytecode(source: str) -> bool:
    """Whether Python would take a module from its compiled file, as `importlib` decides (PEP 552)."""
    try:
        with open(cache_from_source(source), "rb") as file:
            header = file.read(16)
        of_source = os.stat(source)
    except (OSError, NotImplementedError):
        return False
    if header[:4] != MAGIC_NUMBER or len(header) < 16:
        return False
    if int.from_bytes(header[4:8], "little"):
        return True  # checked by the source's hash, or not at all
    mtime, size = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
    return (mtime, size) == (int(of_source.st_mtime) & 0xFFFFFFFF, of_source.st_size & 0xFFFFFFFF)


def compile_command(sources: Iterable[str]) -> str:
    """The shell command that compiles the packages with these `__init__.py`.

    For one in site-packages this is all of site-packages: their own imports are wanted, too.
    """
    installed = sysconfig.get_path("purelib")
    folders = []
    for source in sources:
        package = os.path.dirname(source)
        folder = installed if os.path.dirname(package) == installed else package
        if folder not in folders:
            folders.append(folder)
    return shlex.join([sys.executable, "-m", "compileall", "-q", *folders])


def _can_be_written(source: str) -> bool:
    folder = os.path.dirname(cache_from_source(source))
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK | os.X_OK)


def _make_orphan() -> int:
    """The pid of a process that ends soon and whose parent has."""
    done = subprocess.run(
        ["/bin/sh", "-c", "sleep 0.2 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    return int(done.stdout)
