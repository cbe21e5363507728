"""The process of `bitfusion-device-plugin`: monitoring, looks at the pool, the kubelet's socket."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

from bitfusion_client.command.find_client import find_client
from bitfusion_client.version import VERSION
from bitfusion_cluster.program.program import begin, port_not_opened
from bitfusion_device_plugin.plugin.device_service import DeviceService
from bitfusion_device_plugin.plugin.metrics import PluginMetrics
from bitfusion_device_plugin.plugin.monitoring import monitoring
from bitfusion_device_plugin.plugin.plugin_server import PluginServer
from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer, ask_pool
from bitfusion_device_plugin.plugin.pool_size import PoolHealth
from bitfusion_device_plugin.plugin.pool_watch import PoolWatch
from bitfusion_device_plugin.plugin.registration import (
    ClassicRegistration,
    Registration,
    WatcherRegistration,
)
from bitfusion_device_plugin.plugin.settings import CLASSIC, Settings
from bitfusion_device_plugin.plugin.unit_devices import OfferedUnits

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Called by the command; raises CannotStart and ClientNotFound."""
    begin(settings)
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = PluginMetrics()
    units = OfferedUnits()
    server = PluginServer(DeviceService(units, metrics), _registration(settings, metrics))
    shown = monitoring(server.not_ready, metrics)
    work = [_pool_watch(settings, units, metrics).run(), server.run()]
    try:
        port = await shown.start(settings.bind, settings.monitoring_port)
    except OSError as error:
        for coroutine in work:
            coroutine.close()
        option = "--monitoring-port"
        raise port_not_opened(error, settings.bind, settings.monitoring_port, option) from None
    facts = {"monitoring_port": port, "registration": settings.registration}
    log.info("serving", extra={"version": VERSION, **facts})
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.wait([*tasks, stopping])
        shown.stop()
    for task in tasks:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            raise failure
    log.info("ended")


def _pool_watch(settings: Settings, units: OfferedUnits, metrics: PluginMetrics) -> PoolWatch:
    """Raises ClientNotFound."""
    health = PoolHealth(settings.unhealthy_after, settings.healthy_after)
    fixed = settings.units
    if fixed is None:
        client = (find_client(settings.client, os.environ).path,)

        async def ask() -> PoolAnswer:
            return await ask_pool(client, settings.overcommit, settings.probe_limit)

    else:

        async def ask() -> PoolAnswer:
            return PoolAnswer(fixed, "", 0.0)

    return PoolWatch(ask, units, health, metrics, settings.probe_every, settings.probe_away_every)


def _registration(settings: Settings, metrics: PluginMetrics) -> Registration:
    if settings.registration == CLASSIC:
        return ClassicRegistration(Path(settings.device_plugins), metrics)
    return WatcherRegistration(Path(settings.plugins_registry), metrics)
