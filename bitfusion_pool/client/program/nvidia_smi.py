"""The `nvidia-smi` of programs whose GPUs are simulated: what this program holds, headed SIMULATED.

`inventory.device_sources` puts it on the PATH of such programs only. It asks nobody: all it shows is in
BITFUSION_POOL_DEVICES. What only a real driver knows (temperature, use, processes) it refuses to tell.
"""

from __future__ import annotations

import json
import os

from bitfusion_client.command.log_output import write_text
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_client.text_table import box
from bitfusion_pool.inventory.device_sources import SIMULATED_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

HEADING = "SIMULATED: the CPU computes. The embedded pool's GPUs have no driver and no CUDA."

HELP = f"""\
{HEADING}

nvidia-smi                   what this program holds of each GPU
nvidia-smi -L, --list-gpus   the same, a line for each GPU
nvidia-smi -h, --help        this text
"""

WRONG_OPTION = 2  # as nvidia-smi itself exits
NO_GPU = 6  # likewise: a query to find an object was unsuccessful


def main(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command; returns its exit status. Called by `simulated_bin/nvidia-smi`."""
    words = tuple(args)
    if words in (("-h",), ("--help",)):
        write_text(1, HELP)
        return 0
    if words not in ((), ("-L",), ("--list-gpus",)):
        write_text(2, f"{HEADING}\n{_refusal(words)}\n")
        return WRONG_OPTION
    devices = _devices(environ)
    if not devices:
        write_text(2, f"{HEADING}\nError: this program holds no GPU (no BITFUSION_POOL_DEVICES)\n")
        return NO_GPU
    write_text(1, list_text(devices) if words else table_text(devices, real_command(environ)))
    return 0


def table_text(devices: Sequence[Mapping[str, Any]], real: str = "") -> str:
    """What is held of each GPU, as a table.

    Args:
        devices: As in BITFUSION_POOL_DEVICES.
        real: The machine's own nvidia-smi, if it has one.
    """
    rows = [
        (
            str(device.get("id")),
            one_line(device.get("name")),
            f"{device.get('memory_mib')} of {device.get('total_mib')}",
            one_line(device.get("server")),
        )
        for device in devices
    ]
    text = f"{HEADING}\n" + box(("GPU", "Name", "MiB held", "Server"), rows, frozenset((0, 2)))
    return text + (f"{real} shows this machine's own GPUs; this program does not use them.\n" if real else "")


def list_text(devices: Sequence[Mapping[str, Any]]) -> str:
    """A line for each GPU. Scripts count these lines, so each says by itself that it is simulated."""
    return "".join(
        f"GPU {device.get('id')}: {one_line(device.get('name'))} "
        f"(SIMULATED: {device.get('memory_mib')} of {device.get('total_mib')} MiB, the CPU computes)\n"
        for device in devices
    )


def real_command(environ: Mapping[str, str]) -> str:
    """The path of the nvidia-smi behind this one on PATH, empty if there is none."""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "nvidia-smi")
        ours = os.path.realpath(folder) == os.path.realpath(SIMULATED_COMMANDS)
        if not ours and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def _refusal(words: Sequence[str]) -> str:
    given = one_line(" ".join(words))
    return (
        f"Error: nvidia-smi {given}: only a real GPU's driver could answer that. Available: nvidia-smi, "
        "nvidia-smi -L, nvidia-smi -h; BITFUSION_POOL_DEVICES holds the same as JSON"
    )


def _devices(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        found = json.loads(environ.get("BITFUSION_POOL_DEVICES", "[]"))
    except ValueError:
        return []
    return [device for device in found if isinstance(device, dict)] if isinstance(found, list) else []
