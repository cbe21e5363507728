"""`bitfusion-pool status --json`: the pool as JSON, for programs."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.holder_place import device_sizes, gpus_held, holder_place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_pool.inventory.servers import Device, Server
    from bitfusion_pool.ledger.entries import Entry
    from bitfusion_pool.ledger.snapshot import Snapshot


def status_json(snapshot: Snapshot) -> dict[str, Any]:
    """The object to write. Times are in seconds since the epoch, memory is in MiB.

    `folder` is the service's place where a service showed the pool (`of_service`), and `software` the version
    that it runs, empty where it doesn't say so. Of a lease or a request `gpus_held` counts two halves as 1;
    `of_token` tells whether `user` is the name of a token, and `namespace`, `notebook` and `claims` which
    notebook of a cluster its client is: see `HolderPlace`. `kernel` is what the kernel under it does, null
    where that is not known (see `kernel_state.activity`); its `idle_since` is null unless it is idle.
    The report of `status --kubernetes` reads these.
    """
    sizes = device_sizes(snapshot.servers)
    return {
        "folder": snapshot.folder,
        "of_service": snapshot.of_service,
        "software": snapshot.software,
        "simulated": snapshot.simulated,
        "servers": [_server(snapshot, server) for server in snapshot.servers],
        "leases": [_entry(snapshot, entry, sizes) for entry in snapshot.held],
        "waiting": [
            {**_entry(snapshot, entry, sizes), "position": position}
            for entry, position in zip(snapshot.waiting, snapshot.positions, strict=True)
        ],
        "left_out": snapshot.left_out,
    }


def _server(snapshot: Snapshot, server: Server) -> dict[str, Any]:
    return {
        "name": server.name,
        "address": server.key,
        "tasks": len(snapshot.leases_on(server)),
        "devices": [
            {
                "id": device.number,
                "name": device.name,
                "memory_mib": device.memory_mib,
                "free_mib": snapshot.free[server.key, device.number],
                "simulated": device.simulated,
                **_real(snapshot, server, device),
            }
            for device in server.devices
        ],
    }


def _real(snapshot: Snapshot, server: Server, device: Device) -> dict[str, Any]:
    """What only real devices have."""
    use = snapshot.use_of(server, device)
    if device.simulated or use is None:
        return {}
    return {
        "uuid": device.uuid,
        "busy_percent": use.percent,
        "outside_mib": use.foreign_mib,
        "outside": use.programs,
        "problem": use.problem,
    }


def _entry(snapshot: Snapshot, entry: Entry, sizes: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    since = entry.granted_at or entry.requested_at
    left = snapshot.seconds_left(entry)
    place = holder_place(entry.holder)
    return {
        "id": entry.entry_id,
        "kind": entry.kind,
        "user": entry.holder.user,
        "label": entry.holder.label,
        "host": entry.holder.host,
        "pid": entry.holder.pid,
        "of_token": entry.holder.is_remote,
        "namespace": place.namespace,
        "notebook": place.notebook,
        "claims": place.claimed,
        "request": entry.request.to_json(),
        "since": since,
        "seconds": round(snapshot.taken_at - since, 1),
        "expires": None if left is None else snapshot.taken_at + left,
        "devices": [
            {"server": share.server, "id": share.number, "memory_mib": share.memory_mib}
            for share in entry.shares
        ],
        "gpus_held": gpus_held(entry, sizes),
        "lock_file_missing": entry.entry_id in snapshot.without_lock_file,
        "kernel": None if entry.activity is None else _kernel(snapshot, entry.activity),
    }


def _kernel(snapshot: Snapshot, activity: KernelActivity) -> dict[str, Any]:
    def ago(time: float) -> float:
        return max(0.0, round(snapshot.taken_at - time, 1))

    idle_since = activity.idle_since
    return {
        "state": activity.state,
        "since": activity.since,
        "seconds": ago(activity.since),
        "idle_since": idle_since,
        "idle_seconds": None if idle_since is None else ago(idle_since),
        "notebook": activity.notebook,
    }
