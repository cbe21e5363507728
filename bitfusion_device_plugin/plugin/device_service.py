"""What the kubelet asks of a device plugin: which units there are, and to hand some of them out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.one_line import shown_value
from bitfusion_device_plugin.plugin.messages import (
    DEVICE_PLUGIN,
    AllocateRequest,
    AllocateResponse,
    DevicePluginOptions,
    Empty,
)
from bitfusion_device_plugin.plugin.metrics import PluginMetrics
from bitfusion_device_plugin.plugin.unit_devices import OfferedUnits

Context = Any
"""A grpc.aio.ServicerContext."""


class DeviceService:
    """The ``v1beta1.DevicePlugin`` service over the offered units.

    Allocating is pure: units are counted, nothing is done to the container, because the injector has put the
    client there before. So a kubelet that asks twice, or for a pod that it then drops, leaves nothing behind.

    Attributes:
        streams: How many ListAndWatch calls are open: the kubelet knows of this plugin if it has one.
        stream_closed: Set when one has ended: a kubelet that goes, in whatever way, closes it.
    """

    def __init__(self, units: OfferedUnits, metrics: PluginMetrics) -> None:
        self._units = units
        self._metrics = metrics
        self.streams = 0
        self.closed_at: float | None = None  # time.monotonic() when the last stream ended
        self.stream_closed = asyncio.Event()  # whoever waits for it clears it

    def handler(self) -> grpc.GenericRpcHandler:
        """For a gRPC server."""
        return grpc.method_handlers_generic_handler(
            f"{DEVICE_PLUGIN}.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self._options, Empty.FromString, DevicePluginOptions.SerializeToString
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch, Empty.FromString),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self._allocate, AllocateRequest.FromString, AllocateResponse.SerializeToString
                ),
            },
        )

    async def _options(self, request: object, context: Context) -> Any:
        return DevicePluginOptions()

    async def _list_and_watch(self, request: object, context: Context) -> AsyncIterator[bytes]:
        """The units, and again whenever they change; ends when the kubelet goes, or the plugin does."""
        self.streams += 1
        self._metrics.streams.set(self.streams)
        try:
            async for message in self._units.messages():
                yield message
        finally:
            self.streams -= 1
            self._metrics.streams.set(self.streams)
            self.closed_at = time.monotonic()
            self.stream_closed.set()

    async def _allocate(self, request: Any, context: Context) -> Any:
        begun = time.monotonic()
        response = AllocateResponse()
        wanted = 0
        for container in request.container_requests:
            unknown = self._units.devices.unknown(container.devices_ids)
            if unknown:
                self._metrics.refused_allocations.inc()
                await context.abort(
                    grpc.StatusCode.NOT_FOUND,
                    f'"{shown_value(unknown)}" is none of the {self._units.devices.count} units of '
                    f"{RESOURCE_UNITS} that the pool has; the pod is scheduled again",
                )
            wanted += len(container.devices_ids)
            response.container_responses.add()
        self._metrics.allocated(wanted, time.monotonic() - begun)
        return response
