"""The allocation file (`/tmp/bitfusion` and nine digits), which names the lease of a command."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_pool.ledger.entries import Entry


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
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    else:
        while True:
            digits = int.from_bytes(os.urandom(4), "little") % 900_000_000 + 100_000_000
            path = f"{os.environ.get('TMPDIR') or '/tmp'}/bitfusion{digits}"
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileExistsError:
                continue
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    return path


def read_allocation(path: str) -> tuple[str, str]:
    """The lease's id and the pool's folder (empty in files that name none).

    Raises:
        OSError: The file cannot be read.
        ValueError: The file names no lease.
    """
    with open(path, encoding="utf-8") as file:
        fields = dict(line.rstrip("\n").split(": ", 1) for line in file if ": " in line)
    if "lease" not in fields:
        raise ValueError("it names no lease")
    return fields["lease"], fields.get("pool", "")


def remove_allocation(path: str) -> None:
    """Delete the file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        pass
