"""What any device plugin in Python does at least: ``python -m benchmarks.bare_device_plugin SOCKET UNITS``.

grpc.aio, protobuf, and one answer that was made before. It ends by a signal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from bitfusion_device_plugin.plugin.messages import Empty
from bitfusion_device_plugin.plugin.unit_devices import UnitDevices


async def serve(path: str, units: int) -> None:
    """Until the process is ended."""
    answer = UnitDevices(units, healthy=True).as_message()

    async def list_and_watch(request: object, context: object) -> AsyncIterator[bytes]:
        yield answer
        await asyncio.Event().wait()

    methods = {"ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch, Empty.FromString)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
