"""The whole pool at one moment: what `status`, `list_gpus` and `smi` show."""

from __future__ import annotations

import time

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry
from bitfusion_pool.ledger.lease_lock import has_lock_file

if TYPE_CHECKING:
    from typing import Any

    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`free` is MiB by (server key, device number); `lost`: entries whose lock file somebody deleted."""

    folder: str
    taken: float
    servers: tuple[Server, ...]
    held: tuple[Entry, ...]
    waiting: tuple[Entry, ...]
    places: tuple[int, ...]
    free: dict[tuple[str, int], int]
    lost: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        return any(device.simulated for server in self.servers for device in server.devices)

    def tasks(self, server: Server) -> list[Entry]:
        """The leases on one server."""
        return [entry for entry in self.held if any(share.server == server.key for share in entry.shares)]

    def to_json(self) -> dict[str, Any]:
        """For `status --json`. Times in seconds since the epoch, memory in MiB."""
        return {
            "folder": self.folder,
            "simulated": self.simulated,
            "servers": [
                {
                    "name": server.name,
                    "address": server.key,
                    "tasks": len(self.tasks(server)),
                    "devices": [
                        {
                            "id": device.number,
                            "name": device.name,
                            "memory_mib": device.memory_mib,
                            "free_mib": self.free[server.key, device.number],
                            "simulated": device.simulated,
                        }
                        for device in server.devices
                    ],
                }
                for server in self.servers
            ],
            "leases": [self._entry(entry) for entry in self.held],
            "waiting": [
                {**self._entry(entry), "place": place}
                for entry, place in zip(self.waiting, self.places, strict=True)
            ],
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        return {
            "id": entry.entry_id,
            "kind": entry.kind,
            "user": entry.holder.user,
            "label": entry.holder.label,
            "host": entry.holder.host,
            "pid": entry.holder.pid,
            "request": entry.request.to_json(),
            "since": entry.granted or entry.asked,
            "seconds": round(self.taken - (entry.granted or entry.asked), 1),
            "expires": entry.expires,
            "devices": [
                {"server": share.server, "id": share.number, "memory_mib": share.memory_mib}
                for share in entry.shares
            ],
            "lock_file_missing": entry.entry_id in self.lost,
        }


def take_snapshot(ledger: Ledger) -> Snapshot:
    """Tidy up first, then look. Raises PoolUnreadable."""
    ledger.reap()
    entries = ledger.entries()
    held = tuple(entry for entry in entries if entry.state == HELD)
    waiting = tuple(entry for entry in entries if entry.state == WAITING)
    places = tuple(
        1 + sum(bool(set(entry.servers) & set(other.servers)) for other in waiting[:position])
        for position, entry in enumerate(waiting)
    )
    lost = tuple(
        entry.entry_id
        for entry in entries
        if entry.expires is None and not has_lock_file(ledger.folder, entry.entry_id)
    )
    return Snapshot(ledger.folder, time.time(), ledger.servers, held, waiting, places, ledger.free(), lost)
