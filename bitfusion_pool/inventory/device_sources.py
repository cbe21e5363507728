"""Kinds of GPUs (simulated, real NVIDIA devices) and what a program needs to use them: variables, PATH."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from bitfusion_pool.inventory.servers import Device
else:
    Protocol = object  # importing `typing` would delay every `bitfusion run`

SIMULATED_COMMANDS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "simulated_bin"
)
"""The folder of the commands that stand in for a real GPU's, for programs with simulated GPUs: nvidia-smi."""


class DeviceSource(Protocol):
    """One kind of devices. The ledger decides who gets which share; a source only makes it usable."""

    def environment(self, leased: Sequence[tuple[Device, int]], environ: Mapping[str, str]) -> dict[str, str]:
        """Variables for a program that holds so many MiB of each of these devices, in this order.

        `environ` is what the program gets besides.
        """


class SimulatedDevices:
    """Devices without hardware. The program must not use the machine's real GPUs: it has no lease on them."""

    def environment(self, leased: Sequence[tuple[Device, int]], environ: Mapping[str, str]) -> dict[str, str]:
        """Hide all real GPUs, from CUDA and from `nvidia-smi`, which tells of the simulated ones instead."""
        folders = [SIMULATED_COMMANDS, *_own_folders(environ)]
        return {"CUDA_VISIBLE_DEVICES": "", "PATH": os.pathsep.join(folders)}


class NvidiaDevices:
    """NVIDIA cards and MIG devices of this machine, by their uuids."""

    def environment(self, leased: Sequence[tuple[Device, int]], environ: Mapping[str, str]) -> dict[str, str]:
        """Show CUDA the leased devices only, and keep the frameworks to their shares of memory.

        A program that was started by one with simulated GPUs finds the real nvidia-smi.
        """
        from bitfusion_pool.inventory.nvidia.memory_limits import limit_variables

        found = {
            "CUDA_VISIBLE_DEVICES": ",".join(device.uuid for device, _ in leased),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            **limit_variables(leased, environ),
        }
        if "PATH" in environ:
            found["PATH"] = os.pathsep.join(_own_folders(environ))
        return found


def _own_folders(environ: Mapping[str, str]) -> list[str]:
    """The folders of PATH without ours."""
    path = environ.get("PATH", os.defpath)
    return [folder for folder in path.split(os.pathsep) if folder != SIMULATED_COMMANDS]


def source_of(devices: Sequence[Device]) -> DeviceSource:
    """The source of the devices of one lease, which are all in one server and of one kind."""
    return SimulatedDevices() if all(device.simulated for device in devices) else NvidiaDevices()
