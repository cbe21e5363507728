"""The whole pool at one moment (servers, leases, queue, free memory) for status, list_gpus, smi, health."""

from __future__ import annotations

import time

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.ledger.entries import HELD, REMOTE, Entry
from bitfusion_pool.ledger.files.lease_lock import has_lock_file
from bitfusion_pool.ledger.liveness import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.inventory.nvidia.device_use import DeviceUse
    from bitfusion_pool.inventory.servers import Device, Server
    from bitfusion_pool.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The pool at the time `taken_at` (seconds since the epoch), which was `clock` by `liveness.clock`.

    `waiting` is in the order in which requests are served. `free` is MiB by (server key, device number).
    `without_lock_file`: ids of entries whose lock file somebody deleted, so nobody knows whether they live.
    `of_service`: whether a service showed it, whose lock files only the service sees. `left_out`: how many
    more entries there are, which it did not show. `use` has what is known of real devices, by server key and
    device number. `software`: the version that the service runs, empty where it doesn't say so.
    """

    folder: str
    taken_at: float
    clock: float
    servers: tuple[Server, ...]
    held: tuple[Entry, ...]
    waiting: tuple[Entry, ...]
    free: dict[tuple[str, int], int]
    without_lock_file: tuple[str, ...]
    of_service: bool = False
    left_out: int = 0
    use: Mapping[tuple[str, int], DeviceUse] | None = None
    software: str = ""

    @property
    def positions(self) -> tuple[int, ...]:
        """The queue position of each in `waiting`: how many before it compete, plus one."""
        return tuple(
            1 + sum(not set(entry.servers).isdisjoint(other.servers) for other in self.waiting[:index])
            for index, entry in enumerate(self.waiting)
        )

    def seconds_left(self, entry: Entry) -> float | None:
        """How long a reservation lives without being used; None for entries that have no time to live."""
        return None if entry.expires_at is None else entry.expires_at - self.clock

    @property
    def simulated(self) -> bool:
        """Whether any GPU is simulated."""
        return any(device.simulated for server in self.servers for device in server.devices)

    @property
    def has_real_devices(self) -> bool:
        """Whether any GPU is not simulated."""
        return any(not device.simulated for server in self.servers for device in server.devices)

    def use_of(self, server: Server, device: Device) -> DeviceUse | None:
        """What is known of a real device besides its leases; None before the first reading."""
        return self.use.get((server.key, device.number)) if self.use else None

    def use_lines(self) -> list[str]:
        """A line for each real device that programs outside the pool use, or that has a problem."""
        return [
            f"{server.key} GPU {device.number}: {use.text()}"
            for server in self.servers
            for device in server.devices
            if (use := self.use_of(server, device)) and use.text()
        ]

    def leases_on(self, server: Server) -> list[Entry]:
        """The leases on one server."""
        return [entry for entry in self.held if any(share.server == server.key for share in entry.shares)]


def take_snapshot(ledger: Ledger) -> Snapshot:
    """Remove the entries of the dead, then look. Raises PoolUnreadable."""
    ledger.reap()
    entries = ledger.entries()
    held = tuple(entry for entry in entries if entry.state == HELD)
    waiting = tuple(ledger.in_queue_order(entries))
    without_lock_file = tuple(
        entry.entry_id
        for entry in entries
        if entry.expires_at is None
        and entry.kind != REMOTE
        and not has_lock_file(ledger.folder, entry.entry_id)
    )
    return Snapshot(
        ledger.folder,
        time.time(),
        clock(),
        ledger.servers,
        held,
        waiting,
        ledger.free_memory(),
        without_lock_file,
        use=ledger.device_use,
    )
