"""The allocation file (`/tmp/bitfusion` and nine digits), which names the lease of a command."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import dataclass
from bitfusion_pool.own_files import open_own

_MAX_BYTES = 64 << 10
_SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the file says: a lease, and in which pool it is.

    Attributes:
        entry_id: The lease.
        folder: The folder of the user's own pool; empty for a service, and in files that name none.
        server: The key of the server that has its GPUs.
        service: The socket of the service; empty for the user's own pool.
        secret: What proves to the service that the lease is ours.
    """

    entry_id: str
    folder: str
    server: str = ""
    service: str = ""
    secret: str = ""


def write_allocation(allocation: Allocation, path: str = "") -> str:
    """Write the file at `path`, by default a new name under TMPDIR; returns its path. Raises OSError."""
    if allocation.service:
        place = f"service: {allocation.service}\nsecret: {allocation.secret}"
    else:
        place = f"pool: {allocation.folder}"
    text = f"lease: {allocation.entry_id}\n{place}\nserver: {allocation.server}\n"
    if path:
        fd = open_own(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(fd, 0)
    else:
        while True:
            digits = int.from_bytes(os.urandom(4), "little") % 900_000_000 + 100_000_000
            path = f"{allocation_folder()}/bitfusion{digits}"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(path, flags, 0o600)
                break
            except FileExistsError:
                continue
    try:
        os.write(fd, text.encode(errors="surrogateescape"))
    finally:
        os.close(fd)
    return path


def allocation_folder() -> str:
    """Where allocation files are written without `-f FILE`.

    A TMPDIR that is gone, as a job's scratch folder may be, is passed over, as by Python's `tempfile`. A
    container whose root is read-only may have no `/tmp` to write in, but always shared memory.
    """
    named = os.environ.get("TMPDIR", "")
    named = named if os.path.isdir(named) else ""
    if named or os.access("/tmp", os.W_OK) or not os.access(_SHARED_MEMORY, os.W_OK):
        return named or "/tmp"
    return _SHARED_MEMORY


def read_allocation(path: str) -> Allocation:
    """What the file says.

    Raises:
        OSError: The file cannot be read, or is not this user's.
        ValueError: The file names no lease.
    """
    with open(open_own(path, os.O_RDONLY), encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "lease" not in fields:
        raise ValueError("it names no lease")
    return Allocation(
        fields["lease"],
        fields.get("pool", ""),
        fields.get("server", ""),
        fields.get("service", ""),
        fields.get("secret", ""),
    )


def remove_allocation(path: str) -> None:
    """Delete the file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        pass
