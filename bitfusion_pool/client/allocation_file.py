"""The allocation file (`/tmp/bitfusion` and nine digits), which names the lease of a command."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.own_files import open_own

if TYPE_CHECKING:
    from bitfusion_pool.ledger.entries import Entry

_MAX_BYTES = 64 << 10


def write_allocation(entry: Entry, folder: str, path: str = "") -> str:
    """Write the file that names the lease; returns its path.

    Args:
        entry: The lease.
        folder: The pool's folder.
        path: Where to write; by default a new name under TMPDIR.

    Raises:
        OSError: The file cannot be written.
    """
    text = f"lease: {entry.entry_id}\npool: {folder}\nserver: {entry.shares[0].server}\n"
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
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    return path


def allocation_folder() -> str:
    """Where allocation files are written without `-f FILE`."""
    return os.environ.get("TMPDIR") or "/tmp"


def read_allocation(path: str) -> tuple[str, str]:
    """The lease's id and the pool's folder (empty in files that name none).

    Raises:
        OSError: The file cannot be read, or is not this user's.
        ValueError: The file names no lease.
    """
    with open(open_own(path, os.O_RDONLY), encoding="utf-8") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "lease" not in fields:
        raise ValueError("it names no lease")
    return fields["lease"], fields.get("pool", "")


def remove_allocation(path: str) -> None:
    """Delete the file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        pass
