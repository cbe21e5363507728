"""Two plugins that began at the same moment: each has a name of its own, and one has to give way."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from pathlib import Path

import pytest

from bitfusion_cluster.program.program import CannotStart
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


def test_a_full_disk_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(self: OwnSocket, hidden: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(hidden))

    monkeypatch.setattr(OwnSocket, "check", full)
    monkeypatch.setattr("bitfusion_device_plugin.plugin.plugin_server.LONGEST_SOCKET_PATH", 4096)
    with pytest.raises(CannotStart) as told:
        asyncio.run(_server(tmp_path).run())
    assert told.value.headline == f"No socket can be created in {tmp_path}: No space left on device."
    assert told.value.next_step == "make room on the node's disk."
