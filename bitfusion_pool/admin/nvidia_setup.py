"""`bitfusion-pool init --nvidia`: the pool.toml of a user's own pool that hands out NVIDIA cards."""

from __future__ import annotations

import json
import socket

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pool.inventory.nvidia.nvml_problems import NO_GPUS
from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable, read_cards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.inventory.nvidia.cards import Reading

WARNING = """\
These are real GPUs, and this pool is yours alone: the pool of another user of this machine would hand out the
same GPUs a second time. Shares of a GPU's memory are cooperative: PyTorch, TensorFlow and JAX keep to them,
other programs may not. `bitfusion-pool simulate` goes back to simulated GPUs.
"""


def nvidia_configuration(environ: Mapping[str, str]) -> tuple[str, str]:
    """The text of the pool.toml, and what to tell who asked for it.

    Raises:
        NvidiaUnusable: The cards cannot be read, or there is none.
    """
    reading = read_cards(environ)
    if not reading.devices():
        notes = "".join(f"; {note}" for note in reading.notes)
        raise NvidiaUnusable(
            "", f"this machine's NVIDIA GPUs cannot be used: {NO_GPUS.why}{notes}", NO_GPUS.cure
        )
    notes = "".join(f"Not in the pool: {note}\n" for note in reading.notes)
    return configuration_text(reading, socket.gethostname()), notes + WARNING


def configuration_text(reading: Reading, hostname: str) -> str:
    """One server with the cards of a reading, as TOML."""
    server = {
        "name": "local",
        "hostname": one_line(hostname),
        "cuda_version": reading.cuda_version,
        "driver_version": reading.driver_version,
    }
    parts = ["[[servers]]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in server.items() if value)]
    for device in reading.devices():
        parts.append(
            f"\n[[servers.devices]]\nuuid = {json.dumps(device.uuid)}\nname = {json.dumps(device.name)}\n"
            f"memory_mib = {device.memory_mib}\n"
        )
    return "".join(parts)
