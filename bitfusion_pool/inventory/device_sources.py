"""Kinds of GPUs (simulated, real NVIDIA devices) and what a program needs to use them: variables, PATH.

Support for real devices belongs here: another source.
"""

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

    def environment(self, devices: Sequence[Device], environ: Mapping[str, str]) -> dict[str, str]:
        """Variables for a program that holds a share of each of these devices, in this order.

        `environ` is what the program gets besides.
        """


class SimulatedDevices:
    """Devices without hardware. The program must not use the machine's real GPUs: it has no lease on them."""

    def environment(self, devices: Sequence[Device], environ: Mapping[str, str]) -> dict[str, str]:
        """Hide all real GPUs, from CUDA and from `nvidia-smi`, which tells of the simulated ones instead."""
        folders = [SIMULATED_COMMANDS, *_own_folders(environ)]
        return {"CUDA_VISIBLE_DEVICES": "", "PATH": os.pathsep.join(folders)}


class UnmanagedDevices:
    """Real devices that the pool only counts: it leaves the program's environment as it is."""

    def environment(self, devices: Sequence[Device], environ: Mapping[str, str]) -> dict[str, str]:
        """No variables; a program that was started by one with simulated GPUs finds the real nvidia-smi."""
        return {"PATH": os.pathsep.join(_own_folders(environ))} if "PATH" in environ else {}


def _own_folders(environ: Mapping[str, str]) -> list[str]:
    """The folders of PATH without ours."""
    path = environ.get("PATH", os.defpath)
    return [folder for folder in path.split(os.pathsep) if folder != SIMULATED_COMMANDS]


def source_of(devices: Sequence[Device]) -> DeviceSource:
    """The source of the devices of one lease, which are all in one server and of one kind."""
    return SimulatedDevices() if all(device.simulated for device in devices) else UnmanagedDevices()
