"""Kinds of GPUs (simulated, real NVIDIA devices) and what a program needs to use them: CUDA_VISIBLE_DEVICES.

Support for real devices belongs here: another source.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from bitfusion_pool.inventory.servers import Device
else:
    Protocol = object  # importing `typing` would delay every `bitfusion run`


class DeviceSource(Protocol):
    """One kind of devices. The ledger decides who gets which share; a source only makes it usable."""

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Variables for a program that holds a share of each of these devices, in this order."""


class SimulatedDevices:
    """Devices without hardware. The program must not use the machine's real GPUs: it has no lease on them."""

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Hide all real GPUs from CUDA."""
        return {"CUDA_VISIBLE_DEVICES": ""}


class UnmanagedDevices:
    """Real devices that the pool only counts: it leaves the program's environment as it is."""

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """No variables."""
        return {}


def source_of(devices: Sequence[Device]) -> DeviceSource:
    """The source of the devices of one lease, which are all in one server and of one kind."""
    return SimulatedDevices() if all(device.simulated for device in devices) else UnmanagedDevices()
