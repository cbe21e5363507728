"""One look at the ledger for every change: the states of all entries, and for metrics who holds what."""

from __future__ import annotations

from collections.abc import Mapping

from bitfusion_pool.inventory.servers import Server
from bitfusion_pool.ledger.holder_place import device_sizes, gpu_part
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.service.monitoring.holder_usage import Seen
from bitfusion_pool.service.monitoring.metrics import Metrics, ServerCapacity


def states_of_pool(ledger: Ledger, metrics: Metrics) -> Mapping[str, str]:
    """The state of every entry by its id; called when something may have changed. Raises PoolUnreadable."""
    if not metrics.wants_usage:
        return ledger.states()
    servers = ledger.servers
    gpus = gpus_by_entry(servers, ledger.shares_held())
    idle = {entry_id: activity.idle_since for entry_id, activity in ledger.activities().items()}
    entries = [
        Seen(entry_id, state, user, host, uid, gpus.get(entry_id, 0.0), asked, granted, idle.get(entry_id))
        for entry_id, state, user, host, uid, asked, granted in ledger.usage_columns()
    ]
    states = {seen.entry_id: seen.state for seen in entries}
    metrics.entries(states)
    metrics.usage.update(entries, capacity(servers, ledger.free_memory()))
    return states


def gpus_by_entry(servers: tuple[Server, ...], shares: list[tuple[str, str, int, int]]) -> dict[str, float]:
    """What each lease holds as GPUs, by its id, from ``(id, server, device, MiB)``."""
    sizes = device_sizes(servers)
    found: dict[str, float] = {}
    for entry_id, server, number, mib in shares:
        found[entry_id] = found.get(entry_id, 0.0) + gpu_part(sizes, server, number, mib)
    return found


def capacity(servers: tuple[Server, ...], free: Mapping[tuple[str, int], int]) -> tuple[ServerCapacity, ...]:
    """Each server's GPUs and what is free of them, from free MiB by server key and device number."""
    found = []
    for server in servers:
        left = [max(0, free.get((server.key, gpu.number), 0)) for gpu in server.devices]
        parts = (mib / max(gpu.memory_mib, 1) for mib, gpu in zip(left, server.devices, strict=True))
        memory = sum(gpu.memory_mib for gpu in server.devices)
        found.append(ServerCapacity(server.key, len(server.devices), sum(parts), memory, sum(left)))
    return tuple(found)
