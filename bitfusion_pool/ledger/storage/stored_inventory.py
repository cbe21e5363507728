"""The inventory in the ledger: servers, devices and emulation settings of the last configuration."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.emulation import join_settings, split_settings
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.storage.database import read_meta, write_meta

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping
    from typing import Any

    from bitfusion_pool.inventory.nvidia.device_use import UseByDevice

# keys of the meta table
_INVENTORY = "inventory"  # a random text for each time the inventory was replaced
_CONFIGURATION = "configuration"  # the version of the file it is from
_EMULATION = "manners"
_DEVICE_USE = "device use"  # of the last reading, as JSON; only where devices are real


class StoredInventory:
    """The inventory in a ledger. Servers are kept in memory until another process replaces them."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._servers: tuple[Server, ...] | None = None
        self._seen: str | None = None

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers in the order of the configuration, as of the last `refresh`."""
        if self._servers is None:
            self._servers = _read_servers(self._db)
        return self._servers

    @property
    def emulation_settings(self) -> dict[str, str]:
        """The emulation settings of the configuration."""
        return split_settings(read_meta(self._db, _EMULATION) or "")

    @property
    def configuration_version(self) -> str | None:
        """The version of the file it is from, empty for the default inventory; None in a new ledger."""
        return read_meta(self._db, _CONFIGURATION)

    @property
    def has_real_devices(self) -> bool:
        """Whether any device is not simulated."""
        return any(not device.simulated for server in self.servers for device in server.devices)

    @property
    def device_use(self) -> UseByDevice:
        """What the last reading said of the real devices; empty without such devices, or before it."""
        if not self.has_real_devices:
            return {}
        text = read_meta(self._db, _DEVICE_USE)
        if not text:
            return {}
        import json

        from bitfusion_pool.inventory.nvidia.device_use import use_from_json

        return use_from_json(json.loads(text))

    def note_device_use(self, use: UseByDevice) -> None:
        """Store what a reading says; within a transaction."""
        import json

        from bitfusion_pool.inventory.nvidia.device_use import use_to_json

        write_meta(self._db, _DEVICE_USE, json.dumps(use_to_json(use)))

    def refresh(self) -> None:
        """Notice that another process has replaced the inventory."""
        current = read_meta(self._db, _INVENTORY)
        if current != self._seen:
            self._servers, self._seen = None, current

    def replace(self, servers: tuple[Server, ...], emulation: Mapping[str, str], version: str) -> None:
        """Store another inventory; within a transaction."""
        _write_servers(self._db, servers)
        self._servers, self._seen = servers, os.urandom(8).hex()
        write_meta(self._db, _INVENTORY, self._seen)
        write_meta(self._db, _CONFIGURATION, version)
        write_meta(self._db, _EMULATION, join_settings(emulation))
        write_meta(self._db, _DEVICE_USE, "")


def _read_servers(db: sqlite3.Connection) -> tuple[Server, ...]:
    devices: dict[int, list[Device]] = {}
    servers: dict[int, tuple[Any, ...]] = {}
    # one question: another process may replace all of it between two
    for row in db.execute(
        "SELECT servers.*, number, devices.name, memory_mib, simulated, devices.uuid "
        "FROM servers LEFT JOIN devices ON server = position ORDER BY position, number"
    ):
        servers[row[0]] = row[1:10]
        own = devices.setdefault(row[0], [])
        number, name, memory_mib, simulated, uuid = row[10:]
        if number is not None:
            own.append(Device(number, name, memory_mib, bool(simulated), uuid))
    return tuple(
        Server(name, address, port, tuple(devices[at]), dispatcher, uuid, hostname, bool(rdma), cuda, driver)
        for at, (name, address, port, dispatcher, uuid, hostname, rdma, cuda, driver) in servers.items()
    )


def _write_servers(db: sqlite3.Connection, servers: Iterable[Server]) -> None:
    db.execute("DELETE FROM servers")
    db.execute("DELETE FROM devices")
    for position, server in enumerate(servers):
        db.execute(
            "INSERT INTO servers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                position,
                server.name,
                server.address,
                server.port,
                server.dispatcher_port,
                server.uuid,
                server.hostname,
                int(server.has_rdma),
                server.cuda_version,
                server.driver_version,
            ),
        )
        for device in server.devices:
            db.execute(
                "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?)",
                (position, device.number, device.name, device.memory_mib, int(device.simulated), device.uuid),
            )
