"""Keeps the offered units as the pool is: its size, and whether it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from bitfusion_device_plugin.plugin.metrics import PluginMetrics
from bitfusion_device_plugin.plugin.pool_health import PoolHealth
from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer
from bitfusion_device_plugin.plugin.unit_devices import OfferedUnits, UnitDevices

QUICK_S = 1.0
"""After a probe that contradicts what is offered the next comes sooner, so that three take seconds."""

log = logging.getLogger(__name__)


class PoolWatch:
    """Asks again and again; made and run by the process."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[PoolAnswer]],
        units: OfferedUnits,
        health: PoolHealth,
        metrics: PluginMetrics,
        every_s: float,
    ) -> None:
        self._ask, self._units, self._health, self._metrics = ask, units, health, metrics
        self._every_s = every_s
        self._problem = ""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            settled = self.saw(await self._ask())
            await asyncio.sleep(self._every_s if settled else min(self._every_s, QUICK_S))

    def saw(self, answer: PoolAnswer) -> bool:
        """Take an answer over; whether it is what is offered already, or is from now on.

        A pool that is away keeps its last size, unhealthy: running pods keep the units that they have.
        """
        self._metrics.probed(answer, time.time())
        answered = answer.units is not None
        healthy = self._health.saw(answered)
        if answer.problem and answer.problem != self._problem:
            log.warning("the pool does not answer", extra={"reason": answer.problem})
        self._problem = answer.problem
        count = self._units.devices.count if answer.units is None else answer.units
        devices = UnitDevices(count, healthy)
        if self._units.offer(devices):
            self._metrics.offered(devices)
            log.info("units offered", extra={"units": devices.offered, "of": devices.count})
        return answered == healthy
