"""`bitfusion-pool status`: GPUs, leases and queue as text tables."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.text_table import bar, box
from bitfusion_client.version import PACKAGE
from bitfusion_pool.ledger.entries import RESERVED, Entry, short_duration, size_text

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
        parts.append(f"and {snapshot.left_out} leases or requests more\n")
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
                    f"{server.name} {server.key}",
                    str(device.number),
                    device.shown_name,
                    bar(used, device.memory_mib),
                    f"{used:,}",
                    f"{device.memory_mib:,}",
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
            entry.holder.label,
            size_text(entry.request),
            _where(entry),
            short_duration(int(snapshot.taken_at - (entry.granted_at or snapshot.taken_at))),
            _until(entry, snapshot.seconds_left(entry)),
            entry.entry_id,
        )
        for entry in snapshot.held
    ]
    return box(("User", "Held by", "Request", "GPUs", "for", "until", "Lease"), rows, frozenset((4,)))


def _waiting(snapshot: Snapshot) -> str:
    rows = [
        (
            str(position),
            entry.holder.user,
            entry.holder.label,
            size_text(entry.request),
            short_duration(int(snapshot.taken_at - entry.requested_at)),
            entry.entry_id,
        )
        for entry, position in zip(snapshot.waiting, snapshot.positions, strict=True)
    ]
    return box(("Position", "User", "Waiting", "Request", "for", "Id"), rows, frozenset((0, 4)))


def _where(entry: Entry) -> str:
    numbers = " ".join(str(share.number) for share in entry.shares)
    return f"{entry.shares[0].server} GPU {numbers}" if entry.shares else ""


def _until(entry: Entry, left: float | None) -> str:
    if entry.kind != RESERVED or left is None:
        return "it ends"
    return f"{short_duration(int(left))} unused" if left > 0 else "client ends"
