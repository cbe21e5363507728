"""What kind of GPUs stand behind a lease, and what a program must find in its environment to use them."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from bitfusion_pool.inventory.servers import Device
else:
    Protocol = object  # `typing` is not for the start-up path


class DeviceSource(Protocol):
    """One kind of devices. Shares and queue are the ledger's business; a source only makes them usable."""

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Variables for a program that holds a share of each of these devices, in this order."""


class SimulatedDevices:
    """Devices without hardware: the program gets none of the real cards either, nobody leased it those."""

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ""}


class UnmanagedDevices:
    """Real devices whose use is not arranged here: the environment stays as it is."""

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        return {}


def source_of(devices: Sequence[Device]) -> DeviceSource:
    """The source of the devices of one lease, which are all of one server and of one kind."""
    return SimulatedDevices() if all(device.simulated for device in devices) else UnmanagedDevices()
