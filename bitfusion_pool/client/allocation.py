"""The allocation file (`/tmp/bitfusion` and nine digits), and the environment of a program under a lease."""

from __future__ import annotations

import os

from bitfusion_client.decimals import plain_number
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.device_sources import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.request import GpuRequest
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry


def write_allocation(entry: Entry, folder: str, path: str = "") -> str:
    """Write the file that names the lease, under a new name unless `path` gives one; returns its path.

    Raises OSError.
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
    """Lease id and pool folder from the file. Raises OSError, ValueError."""
    with open(path, encoding="utf-8") as file:
        fields = dict(line.rstrip("\n").split(": ", 1) for line in file if ": " in line)
    if "lease" not in fields:
        raise ValueError("it names no lease")
    return fields["lease"], fields.get("pool", "")


def remove_allocation(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def partial_text(request: GpuRequest, total_mib: int) -> str:
    """The share in the `Locked` line; with -m, where nobody knows the client's words, what it comes to."""
    if request.memory_mib is not None:
        return plain_number(round(request.memory_mib / total_mib, 6))
    return plain_number(request.partial or 1)


def devices_json(entry: Entry, server: Server) -> str:
    """BITFUSION_POOL_DEVICES: the devices of the lease as a JSON list, in the order the program sees them."""
    parts = []
    for share in entry.shares:
        device = server.device(share.number)
        parts.append(
            f'{{"id": {share.number}, "name": {_quoted(device.name)}, "memory_mib": {share.memory_mib}, '
            f'"total_mib": {device.memory_mib}, "server": {_quoted(server.key)}, '
            f'"simulated": {"true" if device.simulated else "false"}}}'
        )
    return "[" + ", ".join(parts) + "]"


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json  # 7 ms: only for names that need it

    return json.dumps(text)


def program_environment(
    environ: Mapping[str, str], entry: Entry, server: Server, lock_fd: int
) -> dict[str, str]:
    """The environment of the program; see docs/pool.md."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    added = {
        "BF_BIN_PATH": f"{here}/bin",
        "BF_ADAPTOR_PATH": f"{here}/",
        "BF_ADAPTOR_RDMA": "1" if server.has_rdma else "0",
        "BITFUSION_POOL_LEASE": entry.entry_id,
        "BITFUSION_POOL_DEVICES": devices_json(entry, server),
        "BITFUSION_POOL_LOCK_FD": str(lock_fd),
    }
    devices = [server.device(share.number) for share in entry.shares]
    return {**environ, **added, **source_of(devices).environment(devices)}
