"""Serves the units to the kubelet, and sees to it that the kubelet knows: serve, announce, watch, again."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from pathlib import Path

import grpc.aio

from bitfusion_cluster.program.program import CannotStart
from bitfusion_device_plugin.plugin.device_service import DeviceService
from bitfusion_device_plugin.plugin.messages import DEVICE_PLUGIN, DevicePluginOptions, Empty
from bitfusion_device_plugin.plugin.own_socket import OwnSocket
from bitfusion_device_plugin.plugin.registration import OWN_CONNECTION, SOCKET_NAMES, Registration

LOOK_EVERY_S = 0.5  # while no stream is open
LOOK_WHILE_SERVED_S = 5.0  # whatever goes wrong then closes the stream, but for a socket that is removed
LONGEST_PATIENCE_S = 10.0
STOP_GRACE_S = 0.2
ANSWER_S = 2.0  # of another plugin; one that hangs is taken for gone
LONGEST_SOCKET_PATH = 107  # bytes: sockaddr_un has 108, the last one is 0

log = logging.getLogger(__name__)


class PluginServer:
    """The plugin's socket over its life. `run` may be called once.

    The kubelet sometimes forgets a plugin whose socket still answers: when two overlap and the older one ends
    (seen on 1.34). So a socket for which no stream is open is put in its place anew, first after the
    registration's patience, then after twice as long, up to 10 s. One of another plugin that answers is left
    alone: this one stands by until it goes.
    """

    def __init__(self, service: DeviceService, registration: Registration) -> None:
        self._service = service
        self._registration = registration
        self._socket = OwnSocket(registration.folder, SOCKET_NAMES)
        self._server: grpc.aio.Server | None = None
        self._shown_at = 0.0
        self._patience_s = registration.patience_s
        self._announced = False
        self.stands_by = False

    def not_ready(self) -> str:
        """What is missing for new pods to get units by this plugin, or by the one it stands by for."""
        return "" if self._service.streams or self.stands_by else "the kubelet has not accepted the plugin"

    async def run(self) -> None:
        """Until it is cancelled; the socket is gone then.

        Raises CannotStart where none can be made, later, too: a folder that was removed and made again is
        another one than the container has mounted, and a new container gets the new one.
        """
        try:
            await self._serve()
            while True:
                await self._pause()
                await self._look()
        finally:
            self._socket.remove()
            await self._stop_server()

    async def _pause(self) -> None:
        """Until it is time to look, or the kubelet has closed a stream."""
        closed = self._service.stream_closed
        timer = asyncio.get_running_loop().call_later(
            LOOK_WHILE_SERVED_S if self._service.streams else LOOK_EVERY_S, closed.set
        )
        try:
            await closed.wait()
        finally:
            timer.cancel()
        closed.clear()

    async def _look(self) -> None:
        """Whether all is well, and if not, serve again."""
        is_there = self._socket.is_there()
        if not (is_there and self._service.streams) and await self._another_serves():
            if not self.stands_by:
                log.info("another plugin serves the kubelet; this one is on standby")
            self.stands_by = True
            self._socket.remove()  # two that began at the same time may each have a name
        elif not is_there:
            log.info("the socket is gone and is created again")
            await self._serve()
        elif self._registration.is_outdated():
            log.info("the kubelet was restarted")
            await self._serve()
        elif self._service.streams:
            self._patience_s = self._registration.patience_s
        elif time.monotonic() - max(self._shown_at, self._service.closed_at or 0.0) > self._patience_s:
            self._patience_s = min(LONGEST_PATIENCE_S, 2 * self._patience_s)
            log.info("the kubelet has no stream open; the socket is created again")
            await self._serve()

    async def _serve(self) -> None:
        """A new server behind the name. Raises CannotStart."""
        if not self._socket.is_there():
            self._socket.choose()
        await self._stop_server()
        hidden = self._socket.hidden_path()
        if len(os.fsencode(hidden)) > LONGEST_SOCKET_PATH:
            raise CannotStart(
                f"No socket can be created in {self._registration.folder}: its path {hidden} has "
                f"{len(os.fsencode(hidden))} bytes, and at most {LONGEST_SOCKET_PATH} are possible.",
                "mount the kubelet's folder at a shorter path.",
            )
        server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 16 << 20)]
        )
        server.add_generic_rpc_handlers((self._service.handler(), *self._registration.handlers()))
        try:
            self._socket.check(hidden)
            server.add_insecure_port(f"unix:{hidden}")
            await server.start()
            self._server = server
            self._socket.show(hidden)
        except (OSError, RuntimeError) as error:
            if self._server is None:
                await server.stop(None)
            raise self._no_socket(error) from None
        self.stands_by = False
        self._shown_at = time.monotonic()
        await self._registration.announce(self._socket.path)

    def _no_socket(self, error: Exception) -> CannotStart:
        what = f"No socket can be created in {self._registration.folder}"
        if isinstance(error, IsADirectoryError):
            return CannotStart(f"{what}: {self._socket.path} is a folder.", "remove it.")
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return CannotStart(f"{what}: {_reason(error)}.", "make room on the node's disk.")
        return CannotStart(
            f"{what}: {_reason(error)}.",
            "mount the kubelet's folder there, writable for this user, or name another one.",
        )

    async def _another_serves(self) -> bool:
        for path in self._socket.others():
            if await _is_served(path):
                return True
        return False

    async def _stop_server(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(STOP_GRACE_S)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or " ".join(str(error).split())


async def _is_served(path: Path) -> bool:
    """Whether a device plugin answers at a socket, in time; one that hangs still accepts connections."""
    if not os.path.lexists(path):
        return False
    async with grpc.aio.insecure_channel(f"unix:{path}", options=OWN_CONNECTION) as channel:
        options = channel.unary_unary(
            f"/{DEVICE_PLUGIN}.DevicePlugin/GetDevicePluginOptions",
            Empty.SerializeToString,
            DevicePluginOptions.FromString,
        )
        try:
            await options(Empty(), timeout=ANSWER_S)
        except grpc.aio.AioRpcError:
            return False
        return True
