"""What offers `nvidia.com/gpu` on a test node: NVIDIA's device plugin, as kubelet and scheduler see it.

`GpusOfNode` starts it as a process beside the node, `python -m tests.cluster.gpu_plugin REGISTRY COUNT`.
It tells the GPUs of an allocation in `NVIDIA_VISIBLE_DEVICES`, as NVIDIA's does by default.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bitfusion_client.request.quantities import quantity_to_count
from bitfusion_device_plugin.plugin.messages import (
    DEVICE_PLUGIN,
    REGISTRATION,
    VERSION,
    AllocateRequest,
    DevicePluginOptions,
    Empty,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from bitfusion_device_plugin.plugin.unit_devices import UnitDevices
from tests.cluster.api_client import ApiClient, Object
from tests.cluster.components import Component
from tests.cluster.node import Node
from tests.support.waiting import wait_until

GPU = "nvidia.com/gpu"
TAINT: Object = {"key": GPU, "value": "present", "effect": "NoSchedule"}
"""As clouds and GPU operators keep other pods away."""
VISIBLE = b"NVIDIA_VISIBLE_DEVICES"
_SOCKET = "gpu.sock"


class GpusOfNode:
    """GPUs on a node that has none; a context manager.

    Args:
        node: Gets them, and the taint of GPU nodes.
        count: How many.
    """

    def __init__(self, node: Node, count: int) -> None:
        self._node = node
        self._count = count
        registry = node.plugins_registry
        self._plugin: Component = node.cluster.component(
            f"gpus-of-{node.name}",
            [sys.executable, "-m", __name__, str(registry), str(count)],
            (registry / _SOCKET).exists,
            {"PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def __enter__(self) -> GpusOfNode:
        client = self._node.cluster.client
        client.merge(f"/api/v1/nodes/{self._node.name}", {"spec": {"taints": [TAINT]}})
        self._plugin.start()
        self.wait_there()
        return self

    def __exit__(self, *_: object) -> None:
        self._plugin.stop(signal.SIGTERM)
        self._node.cluster.client.merge(f"/api/v1/nodes/{self._node.name}", {"spec": {"taints": []}})

    def wait_there(self) -> None:
        """Until the scheduler knows of all of them, also after a restart of the kubelet."""
        client, name = self._node.cluster.client, self._node.name
        wait_until(
            lambda: allocatable(client, name) == self._count,
            lambda: f"{name} offers {allocatable(client, name)} of {self._count} {GPU}",
            60,
        )


def allocatable(client: ApiClient, node: str) -> int:
    """GPUs of a node as the scheduler has it."""
    status = client.get(f"/api/v1/nodes/{node}")["status"]
    return quantity_to_count(status["allocatable"].get(GPU, "0"))


def holders(client: ApiClient, node: str) -> dict[str, int]:
    """GPUs by pod (namespace/name) which the scheduler counts as taken on the node."""
    found = {}
    for pod in client.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]:
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
        held = sum(quantity_to_count(each.get(GPU, "0")) for each in limits)
        if held:
            found[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = held
    return found


# -- the process -----------------------------------------------------------------------------------------


async def serve(registry: Path, count: int) -> None:
    """Until the process is ended."""
    devices = UnitDevices(count, healthy=True).as_message()

    async def options(request: object, context: object) -> Any:
        return DevicePluginOptions()

    async def list_and_watch(request: object, context: object) -> AsyncIterator[bytes]:
        yield devices
        await asyncio.Event().wait()

    async def allocate(request: Any, context: object) -> bytes:
        return b"".join(
            _field(1, _field(1, _field(1, VISIBLE) + _field(2, ",".join(container.devices_ids).encode())))
            for container in request.container_requests
        )

    async def info(request: object, context: object) -> Any:
        return PluginInfo(type="DevicePlugin", name=GPU, endpoint="", supported_versions=[VERSION])

    async def status(request: Any, context: object) -> Any:
        return RegistrationStatusResponse()

    answers = grpc.unary_unary_rpc_method_handler
    plugin = {
        "GetDevicePluginOptions": answers(options, Empty.FromString, DevicePluginOptions.SerializeToString),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch, Empty.FromString),
        "Allocate": answers(allocate, AllocateRequest.FromString),
    }
    registration = {
        "GetInfo": answers(info, InfoRequest.FromString, PluginInfo.SerializeToString),
        "NotifyRegistrationStatus": answers(
            status, RegistrationStatus.FromString, RegistrationStatusResponse.SerializeToString
        ),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(f"{DEVICE_PLUGIN}.DevicePlugin", plugin),
            grpc.method_handlers_generic_handler(f"{REGISTRATION}.Registration", registration),
        )
    )
    server.add_insecure_port(f"unix:{registry / _SOCKET}")
    await server.start()
    await server.wait_for_termination()


def _field(number: int, content: bytes) -> bytes:
    """Of a message of protobuf: an AllocateResponse is of containers (1) with variables (1)."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
