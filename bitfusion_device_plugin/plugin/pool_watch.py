"""Keeps the offered units as the pool is: its size, and whether it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from bitfusion_device_plugin.plugin.metrics import PluginMetrics
from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer
from bitfusion_device_plugin.plugin.pool_size import PoolHealth, SteadySize
from bitfusion_device_plugin.plugin.unit_devices import OfferedUnits, UnitDevices

DOUBT_S = 1.0
"""After an answer that contradicts what is offered the next comes sooner, so that three take seconds."""
RETURN_S = 0.5
"""The same while the pool is away: that it is back is to be known soon."""

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
        away_every_s: float,
    ) -> None:
        """`every_s` between two looks at a pool that answers, `away_every_s` at one that does not."""
        self._ask, self._units, self._health, self._metrics = ask, units, health, metrics
        self._size = SteadySize(health.down_after)
        self._every_s, self._away_every_s = every_s, away_every_s
        self._problem = ""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.saw(await self._ask()))

    def saw(self, answer: PoolAnswer) -> float:
        """Take an answer over; the seconds until the next one is wanted.

        A pool that is away keeps its last size, unhealthy: running pods keep the units that they have.
        """
        self._metrics.probed(answer, time.time())
        answered = answer.units is not None
        healthy = self._health.saw(answered)
        if answer.problem and answer.problem != self._problem:
            log.warning("the pool does not answer", extra={"reason": answer.problem})
        self._problem = answer.problem
        count = self._size.units if answer.units is None else self._size.saw(answer.units, healthy)
        devices = UnitDevices(count, healthy)
        if self._units.offer(devices):
            self._metrics.offered(devices)
            log.info("units offered", extra={"units": devices.offered, "of": devices.count})
        if answered and answer.units == count and healthy:
            return self._every_s
        if healthy:
            return min(self._every_s, DOUBT_S)
        return min(self._every_s, RETURN_S if answered else self._away_every_s)
