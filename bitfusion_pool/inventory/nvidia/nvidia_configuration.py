"""A pool of NVIDIA cards as the text of a pool.toml: one server, each device with its uuid. Pure."""

from __future__ import annotations

import json

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pool.inventory.servers import Device, default_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bitfusion_pool.inventory.nvidia.cards import Reading


def configuration_text(devices: Iterable[Device], reading: Reading, hostname: str) -> str:
    """One server with these devices, and what a reading says of the driver, as TOML."""
    server = {
        "name": default_name(0),
        "hostname": one_line(hostname),
        "cuda_version": reading.cuda_version,
        "driver_version": reading.driver_version,
    }
    parts = ["[[servers]]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in server.items() if value)]
    for device in devices:
        parts.append(
            f"\n[[servers.devices]]\nuuid = {json.dumps(device.uuid)}\nname = {json.dumps(device.name)}\n"
            f"memory_mib = {device.memory_mib}\n"
        )
    return "".join(parts)


def same_numbers(before: Sequence[Device], now: Sequence[Device]) -> list[Device]:
    """The devices of a reading, each with the number that it had before; leases name devices by number.

    Those that are no longer there stay: a lease may be on them, and they may come back.
    """
    found = {device.uuid: device for device in now}
    known = {device.uuid for device in before}
    kept = [found.get(device.uuid, device) for device in before]
    return kept + [device for device in now if device.uuid not in known]
