"""A server and the GPUs (devices) in it, as plain values; the default server of an unconfigured pool."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_DEVICE_NAME = "Simulated Tesla V100-PCIE-16GB"
DEFAULT_MEMORY_MIB = 16160  # as in the logs of the real client for this card


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `number` counts from 0 within its server; `simulated` means there is no hardware behind it."""

    number: int
    name: str
    memory_mib: int
    simulated: bool = True
    uuid: str = ""

    @property
    def is_mig(self) -> bool:
        """Whether it is a part of an NVIDIA card, made by MIG."""
        return self.uuid.startswith("MIG-")

    @property
    def shown_name(self) -> str:
        """The name for people; it always says when the device is simulated."""
        if not self.simulated or "simulated" in self.name.lower():
            return self.name
        return f"{self.name} (simulated)"


@dataclass(frozen=True, slots=True)
class Server:
    """One machine with GPUs."""

    name: str
    address: str
    port: int
    devices: tuple[Device, ...]
    dispatcher_port: int = 55001
    uuid: str = ""
    hostname: str = ""
    has_rdma: bool = False
    cuda_version: str = "11.2"
    driver_version: str = "460.73.01"

    @property
    def has_default_name(self) -> bool:
        """Whether nobody has chosen its name; ``local`` is that of an earlier version."""
        return self.name == "local" or (self.name.startswith("server") and self.name[6:].isdigit())

    @property
    def shown_name(self) -> str:
        """What people read: its key, after a name that somebody has chosen."""
        is_chosen = not self.has_default_name and self.name != self.address
        return f"{self.name} {self.key}" if is_chosen else self.key

    @property
    def key(self) -> str:
        """``address:port``, which identifies the server in the ledger, in requests and in log lines."""
        return f"{self.address}:{self.port}"

    def has_device(self, number: int) -> bool:
        """Whether there is a device with this number."""
        return any(device.number == number for device in self.devices)

    def device(self, number: int) -> Device:
        """The device with this number.

        Raises:
            KeyError: The server has no such device.
        """
        for device in self.devices:
            if device.number == number:
                return device
        raise KeyError(number)


def simulated_devices(count: int, memory_mib: int, name: str, first: int = 0) -> tuple[Device, ...]:
    """`count` equal simulated devices, numbered from `first`."""
    return tuple(Device(first + offset, name, memory_mib) for offset in range(count))


def only_simulated(servers: tuple[Server, ...]) -> tuple[Server, ...]:
    """Those without real devices; a configuration has no server with both."""
    return tuple(server for server in servers if all(device.simulated for device in server.devices))


def gone_server(key: str, devices: Sequence[tuple[int, int]]) -> Server:
    """A server that the pool has no more, as one of its leases knows it: numbers and MiB of devices."""
    address, _, port = key.rpartition(":")
    gone = tuple(Device(number, "GPU that the pool no longer has", mib) for number, mib in devices)
    return Server(address, address, int(port), gone)


def stable_uuid(*words: str) -> str:
    """A uuid derived from `words`: a server keeps its uuid although nothing stores it."""
    from hashlib import md5

    digits = md5("\0".join(words).encode(), usedforsecurity=False).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def default_name(position: int) -> str:
    """The name of the server at this position, counted as the client's own lines do: from 0."""
    return f"server{position}"


def default_servers() -> tuple[Server, ...]:
    """The servers of a pool without a configuration: one on this machine, with two simulated GPUs."""
    devices = simulated_devices(2, DEFAULT_MEMORY_MIB, DEFAULT_DEVICE_NAME)
    return (
        Server(default_name(0), "127.0.0.1", 56001, devices, uuid=stable_uuid("local", "127.0.0.1:56001")),
    )
