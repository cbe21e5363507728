"""Two plugins that began at the same moment: each has a name of its own, and one has to give way."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from bitfusion_device_plugin.plugin.device_service import DeviceService
from bitfusion_device_plugin.plugin.metrics import PluginMetrics
from bitfusion_device_plugin.plugin.own_socket import OwnSocket
from bitfusion_device_plugin.plugin.plugin_server import PluginServer
from bitfusion_device_plugin.plugin.registration import SOCKET_NAMES, WatcherRegistration
from bitfusion_device_plugin.plugin.unit_devices import OfferedUnits
from tests.support.machine import scaled


def _server(folder: Path) -> PluginServer:
    metrics = PluginMetrics()
    return PluginServer(DeviceService(OfferedUnits(), metrics), WatcherRegistration(folder, metrics))


async def _one_left(folder: Path, servers: list[PluginServer]) -> None:
    while len(list(folder.glob("*.sock"))) < 2:
        await asyncio.sleep(0.01)
    while len(list(folder.glob("*.sock"))) != 1 or sorted(server.stands_by for server in servers) != [
        False,
        True,
    ]:
        await asyncio.sleep(0.05)


def test_of_two_that_took_a_name_each_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(SOCKET_NAMES)
    choose = OwnSocket.choose

    def chosen_apart(self: OwnSocket) -> None:
        name = next(names, "")
        if name:
            self.path = self.path.with_name(name)
        else:
            choose(self)

    monkeypatch.setattr(OwnSocket, "choose", chosen_apart)

    async def both(folder: Path) -> None:
        servers = [_server(folder), _server(folder)]
        tasks = [asyncio.ensure_future(server.run()) for server in servers]
        try:
            await asyncio.wait_for(_one_left(folder, servers), scaled(20))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    with tempfile.TemporaryDirectory(prefix="bft-", dir="/tmp") as folder:
        asyncio.run(both(Path(folder)))
        assert not list(Path(folder).glob("*.sock"))
