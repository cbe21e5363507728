"""The units of the pool as the kubelet sees them: devices with names, all healthy or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

from bitfusion_device_plugin.plugin.messages import HEALTHY, UNHEALTHY, ListAndWatchResponse

PREFIX = "unit-"


@dataclass(frozen=True, slots=True)
class UnitDevices:
    """So many units, and whether the pool answers. Names are the same on every node, after every start.

    Running pods keep their units by these names: fewer units take the last ones away, more add some behind.
    """

    count: int = 0
    healthy: bool = False

    @property
    def offered(self) -> int:
        """How many a new pod can get."""
        return self.count if self.healthy else 0

    def names(self) -> Iterator[str]:
        """From ``unit-0`` on."""
        return (f"{PREFIX}{number}" for number in range(self.count))

    def unknown(self, names: Iterable[str]) -> str:
        """The first of these names that is no unit; empty if all are."""
        for name in names:
            number = name.removeprefix(PREFIX)
            digits = number if number.isascii() and number.isdigit() and len(number) <= 9 else ""
            if not digits or f"{PREFIX}{int(digits)}" != name or int(digits) >= self.count:
                return name
        return ""

    def as_message(self) -> bytes:
        """A ListAndWatchResponse, serialized: 5,000 units are made once, not once a stream."""
        health = HEALTHY if self.healthy else UNHEALTHY
        message = ListAndWatchResponse()
        for name in self.names():  # one by one: a list of them all first takes 1.4 MB more, for good
            message.devices.add(ID=name, health=health)
        return bytes(message.SerializeToString())


class OfferedUnits:
    """The units that are offered now, and word of every change for the streams to the kubelet."""

    def __init__(self) -> None:
        self.devices = UnitDevices()
        self._message = self.devices.as_message()
        self._changed = asyncio.Event()

    def offer(self, devices: UnitDevices) -> bool:
        """Replace them; whether that is a change. Called by whoever looks at the pool."""
        if devices == self.devices:
            return False
        self.devices, self._message = devices, devices.as_message()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return True

    async def messages(self) -> AsyncIterator[bytes]:
        """What there is, then what there is after each change; a slow reader misses what was replaced."""
        while True:
            changed = self._changed
            yield self._message
            await changed.wait()
