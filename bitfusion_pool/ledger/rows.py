"""Between the ledger's rows and the objects of this package."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request import GpuRequest
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import WAITING, Entry, Holder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from typing import Any

COLUMNS = (
    "number, entry_id, state, kind, gpus, partial, memory_mib, filters, servers, possible, "
    "label, user, pid, host, uid, asked, granted, expires"
)


def insert_entry(
    db: sqlite3.Connection,
    entry_id: str,
    kind: str,
    request: GpuRequest,
    possible: tuple[str, ...],
    holder: Holder,
    now: float,
) -> None:
    """Write a new entry at the end of the queue."""
    names = COLUMNS.partition(", ")[2]
    values = (
        entry_id,
        WAITING,
        kind,
        request.gpus,
        request.partial,
        request.memory_mib,
        "\n".join(f"{key}={value}" for key, value in request.filters),
        "\n".join(request.servers),
        " ".join(possible),
        holder.label,
        holder.user,
        holder.pid,
        holder.host,
        holder.uid,
        now,
        None,
        None,
    )
    db.execute(f"INSERT INTO entries ({names}) VALUES ({','.join('?' * len(values))})", values)


def entry_from_row(row: tuple[Any, ...], shares: Iterable[Share] = ()) -> Entry:
    """One row of COLUMNS as an Entry."""
    number, entry_id, state, kind, gpus, partial, memory_mib, filters, servers, possible = row[:10]
    label, user, pid, host, uid, asked, granted, expires = row[10:]
    pairs = tuple((key, value) for key, _, value in (line.partition("=") for line in filters.splitlines()))
    request = GpuRequest(gpus, partial, memory_mib, pairs, tuple(servers.splitlines()))
    holder = Holder(label, user, pid, host, uid)
    keys = tuple(possible.split())
    return Entry(number, entry_id, state, kind, request, holder, keys, asked, granted, expires, tuple(shares))


def shares_by_entry(db: sqlite3.Connection) -> dict[int, list[Share]]:
    """What every entry holds, by the entry's number."""
    found: dict[int, list[Share]] = {}
    for number, server, device, memory_mib in db.execute("SELECT * FROM shares ORDER BY server, device"):
        found.setdefault(number, []).append(Share(server, device, memory_mib))
    return found


def read_servers(db: sqlite3.Connection) -> tuple[Server, ...]:
    """The inventory, servers in the order of the configuration."""
    devices: dict[int, list[Device]] = {}
    for server, number, name, memory_mib, simulated, uuid in db.execute(
        "SELECT server, number, name, memory_mib, simulated, uuid FROM devices ORDER BY server, number"
    ):
        devices.setdefault(server, []).append(Device(number, name, memory_mib, bool(simulated), uuid))
    found = []
    for position, name, address, port, dispatcher, uuid, hostname, rdma, cuda, driver in db.execute(
        "SELECT * FROM servers ORDER BY position"
    ):
        own = tuple(devices.get(position, ()))
        found.append(Server(name, address, port, own, dispatcher, uuid, hostname, bool(rdma), cuda, driver))
    return tuple(found)


def write_servers(db: sqlite3.Connection, servers: Iterable[Server]) -> None:
    """Replace the inventory."""
    db.execute("DELETE FROM servers")
    db.execute("DELETE FROM devices")
    for position, one in enumerate(servers):
        db.execute(
            "INSERT INTO servers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                position,
                one.name,
                one.address,
                one.port,
                one.dispatcher_port,
                one.uuid,
                one.hostname,
                int(one.has_rdma),
                one.cuda_version,
                one.driver_version,
            ),
        )
        for device in one.devices:
            db.execute(
                "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?)",
                (position, device.number, device.name, device.memory_mib, int(device.simulated), device.uuid),
            )
