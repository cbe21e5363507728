"""`bitfusion-pool status`: GPUs, leases and queue as text tables."""

from __future__ import annotations

from bitfusion_client.clock_time import elapsed_text
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.text_table import bar, box
from bitfusion_client.version import PACKAGE
from bitfusion_pool.ledger.entries import RESERVED, Entry, size_text

if TYPE_CHECKING:
    from bitfusion_pool.inventory.servers import Device, Server
    from bitfusion_pool.ledger.snapshot import Snapshot


def status_text(snapshot: Snapshot) -> str:
    """The tables of a snapshot: GPUs, who holds them, who waits."""
    simulated = ", simulated GPUs" if snapshot.simulated else ""
    where = "of the service at" if snapshot.of_service else "in"
    software = f", {PACKAGE} {snapshot.software}" if snapshot.software else ""
    parts = [f"GPU pool {where} {snapshot.folder}{software}{simulated}\n\n", _gpus(snapshot)]
    parts += ["\n", _held(snapshot) if snapshot.held else "Nobody holds a GPU.\n"]
    if snapshot.waiting:
        parts += ["\n", _waiting(snapshot)]
    if snapshot.left_out:
        parts.append(f"and {snapshot.left_out} more leases or requests\n")
    if snapshot.without_lock_file:
        parts.append(
            "\nThe lock files of these were deleted; nobody can tell whether they still run:\n  "
            + "\n  ".join(snapshot.without_lock_file)
            + "\nOnce you know that they have ended: bitfusion-pool reap --force LEASE\n"
        )
    return "".join(parts)


def _gpus(snapshot: Snapshot) -> str:
    rows = []
    for server in snapshot.servers:
        for device in server.devices:
            free = snapshot.free[server.key, device.number]
            used = device.memory_mib - free
            rows.append(
                (
                    server.shown_name,
                    str(device.number),
                    device.shown_name,
                    bar(used, device.memory_mib),
                    str(used),
                    str(device.memory_mib),
                    *_busy(snapshot, server, device),
                )
            )
    titles = ("Server", "GPU", "Name", "Memory", "used MiB", "of MiB")
    busy = ("busy",) if snapshot.has_real_devices else ()
    outside = "".join(f"{line}\n" for line in snapshot.use_lines())
    return box((*titles, *busy), rows, frozenset((1, 4, 5, 6))) + outside


def _busy(snapshot: Snapshot, server: Server, device: Device) -> tuple[str, ...]:
    if not snapshot.has_real_devices:
        return ()
    use = snapshot.use_of(server, device)
    return ("" if use is None or use.percent is None else f"{use.percent} %",)


def _held(snapshot: Snapshot) -> str:
    rows = [
        (
            entry.holder.user,
            _who(entry),
            size_text(entry.request),
            _where(entry),
            elapsed_text(snapshot.taken_at - (entry.granted_at or snapshot.taken_at)),
            *_kernel(snapshot, entry),
            _until(entry, snapshot.seconds_left(entry)),
            entry.entry_id,
        )
        for entry in snapshot.held
    ]
    kernel = ("Kernel",) if _says_kernel(snapshot) else ()
    titles = ("User", "Held by", "Request", "GPUs", "for", *kernel, "until", "Lease")
    return box(titles, rows, frozenset((4,)))


def _waiting(snapshot: Snapshot) -> str:
    rows = [
        (
            str(position),
            entry.holder.user,
            _who(entry),
            size_text(entry.request),
            elapsed_text(snapshot.taken_at - entry.requested_at),
            entry.entry_id,
        )
        for entry, position in zip(snapshot.waiting, snapshot.positions, strict=True)
    ]
    return box(("Position", "User", "Waiting", "Request", "for", "Id"), rows, frozenset((0, 4)))


def _who(entry: Entry) -> str:
    """The label, and the kernel's notebook where that is not in it."""
    notebook = entry.activity.notebook if entry.activity is not None else ""
    return f"{entry.holder.label}: {notebook}" if notebook not in entry.holder.label else entry.holder.label


def _says_kernel(snapshot: Snapshot) -> bool:
    """Whether there is a column of kernels: where one of those that hold says what it does."""
    return any(entry.activity is not None for entry in snapshot.held)


def _kernel(snapshot: Snapshot, entry: Entry) -> tuple[str, ...]:
    if not _says_kernel(snapshot):
        return ()
    return ("not known" if entry.activity is None else entry.activity.text(snapshot.taken_at),)


def _where(entry: Entry) -> str:
    numbers = " ".join(str(share.number) for share in entry.shares)
    return f"{entry.shares[0].server} GPU {numbers}" if entry.shares else ""


def _until(entry: Entry, left: float | None) -> str:
    if entry.kind != RESERVED or left is None:
        return "it ends"
    return f"{elapsed_text(left)} unused" if left > 0 else "client ends"
