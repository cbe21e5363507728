"""Kinds of GPUs (simulated, real NVIDIA devices) and what a program needs to use them: variables, PATH."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.inventory.servers import Device

SIMULATED_COMMANDS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "simulated_bin"
)
"""The folder of the commands that stand in for a real GPU's, for programs with simulated GPUs: nvidia-smi."""


def gpu_variables(leased: Sequence[tuple[Device, int]], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a program that holds so many MiB of each of these devices, in this order.

    The devices are in one server, and of one kind. With simulated ones all real GPUs are hidden, from CUDA
    and from `nvidia-smi`, which tells of the simulated ones instead: the program has no lease on real ones.
    Of real ones CUDA shows the leased ones only, and the frameworks keep to their shares of memory; a program
    that was started by one with simulated GPUs finds the real `nvidia-smi`.

    Args:
        leased: The devices; the ledger has decided who gets which share.
        environ: What the program gets besides.
    """
    path = environ.get("PATH", os.defpath)
    folders = [folder for folder in path.split(os.pathsep) if folder != SIMULATED_COMMANDS]
    if all(device.simulated for device, _ in leased):
        return {"CUDA_VISIBLE_DEVICES": "", "PATH": os.pathsep.join([SIMULATED_COMMANDS, *folders])}
    from bitfusion_client.gpu_memory.limits import fraction_variables, framework_fraction, hook_variables

    limits = fraction_variables(
        [framework_fraction(memory_mib, device.memory_mib) for device, memory_mib in leased], environ
    )
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device, _ in leased),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **limits,
        **hook_variables({**environ, **limits}),
        **({"PATH": os.pathsep.join(folders)} if "PATH" in environ else {}),
    }
