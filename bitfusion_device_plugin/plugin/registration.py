"""How the kubelet learns of the plugin: it looks into a folder (watcher), or it is told (classic)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.one_line import shown_value
from bitfusion_device_plugin.plugin.messages import (
    DEVICE_PLUGIN,
    REGISTRATION,
    VERSION,
    DevicePluginOptions,
    Empty,
    InfoRequest,
    PluginInfo,
    RegisterRequest,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from bitfusion_device_plugin.plugin.metrics import PluginMetrics

SOCKET_NAMES = ("bitfusion.io-gpu.sock", "bitfusion.io-gpu-2.sock")
KUBELET_SOCKET = "kubelet.sock"
REGISTER_S = 5.0
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]  # not one to the kubelet before this one

log = logging.getLogger(__name__)


class WatcherRegistration:
    """The kubelet watches the folder, asks every socket that appears there, and says what came of it.

    It does so again by itself after its own restart; nothing has to be noticed for that.

    Attributes:
        folder: Where the plugin's socket is.
        patience_s: How long the kubelet may have no stream open before it is told once more.
    """

    patience_s = 2.0

    def __init__(self, folder: Path, metrics: PluginMetrics) -> None:
        self.folder = folder
        self._metrics = metrics

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What the kubelet asks besides the plugin's own service: ``pluginregistration.Registration``."""
        methods = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                self._info, InfoRequest.FromString, PluginInfo.SerializeToString
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                self._status, RegistrationStatus.FromString, RegistrationStatusResponse.SerializeToString
            ),
        }
        return (grpc.method_handlers_generic_handler(f"{REGISTRATION}.Registration", methods),)

    async def announce(self, socket: Path) -> bool:
        """Called when the socket answers in its place; whether the kubelet could be told."""
        return True

    def is_outdated(self) -> bool:
        """Whether the kubelet that was told is another one by now: never, a new one looks into the folder."""
        return False

    async def _info(self, request: object, context: object) -> Any:
        # An empty endpoint is this socket's own path, as the kubelet sees it: ours may be mounted elsewhere.
        return PluginInfo(type="DevicePlugin", name=RESOURCE_UNITS, endpoint="", supported_versions=[VERSION])

    async def _status(self, request: Any, context: object) -> Any:
        if request.plugin_registered:
            self._metrics.registrations.labels("registered").inc()
            log.info("the kubelet has registered the plugin")
        else:
            self._metrics.registrations.labels("refused").inc()
            log.error("the kubelet refuses the plugin", extra={"reason": shown_value(request.error)})
        return RegistrationStatusResponse()


class ClassicRegistration:
    """The plugin tells the kubelet, which forgets it at every restart, and removes the sockets there.

    Its attributes and methods are those of `WatcherRegistration`.
    """

    patience_s = 5.0

    def __init__(self, folder: Path, metrics: PluginMetrics) -> None:
        self.folder = folder
        self._metrics = metrics
        self._told: int | None = None  # the inode of the kubelet's socket

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """None."""
        return ()

    async def announce(self, socket: Path) -> bool:
        """``v1beta1.Registration/Register``; a failure is logged, and tried again by the caller."""
        self._told = self._kubelet()
        request = RegisterRequest(
            version=VERSION,
            endpoint=socket.name,
            resource_name=RESOURCE_UNITS,
            options=DevicePluginOptions(),
        )
        async with grpc.aio.insecure_channel(
            f"unix:{self.folder / KUBELET_SOCKET}", options=OWN_CONNECTION
        ) as channel:
            register = channel.unary_unary(
                f"/{DEVICE_PLUGIN}.Registration/Register", RegisterRequest.SerializeToString, Empty.FromString
            )
            try:
                await register(request, timeout=REGISTER_S)
            except grpc.aio.AioRpcError as error:
                self._metrics.registrations.labels("refused").inc()
                reason = shown_value(error.details() or error.code().name)
                log.error("the kubelet cannot be informed of the plugin", extra={"reason": reason})
                return False
        self._metrics.registrations.labels("registered").inc()
        log.info("the kubelet has registered the plugin")
        return True

    def is_outdated(self) -> bool:
        """Whether the kubelet was restarted's socket than the one that was told."""
        found = self._kubelet()
        return found is not None and found != self._told

    def _kubelet(self) -> int | None:
        try:
            return os.lstat(self.folder / KUBELET_SOCKET).st_ino
        except OSError:
            return None


Registration = WatcherRegistration | ClassicRegistration
