"""A kubelet as a device plugin sees it: its plugin watcher, its registration socket, its calls.

What it does was seen on Kubernetes 1.20 and 1.34: it asks every socket that appears in the folder (a name
that begins with a dot is passed over; a new one of the same name is taken in the look after the one that
let go of the old one), takes the newest plugin of a resource and drops the one before,
forgets a plugin whose socket vanishes, has nothing allocatable when a stream ends, and in the classic way
removes every socket when it starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from bitfusion_device_plugin.plugin.messages import (
    AllocateRequest,
    AllocateResponse,
    DevicePluginOptions,
    Empty,
    InfoRequest,
    ListAndWatchResponse,
    PluginInfo,
    RegisterRequest,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from tests.support.machine import scaled

LOOK_S = 0.02
CALL_S = 10.0


def _channel(path: Path) -> Any:
    """A connection of its own: gRPC would share one with the socket that had this name before."""
    return grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])


@contextmanager
def unread_stream(path: Path) -> Iterator[Iterator[Any]]:
    """A ListAndWatch call of a client that reads no message before it is asked for the next one."""
    with _channel(path) as channel:
        watch = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch", Empty.SerializeToString, ListAndWatchResponse.FromString
        )
        stream = watch(Empty(), timeout=scaled(60))
        try:
            yield stream
        finally:
            stream.cancel()


class Endpoint:
    """One plugin that the kubelet knows: a channel, and a stream that a thread reads."""

    def __init__(self, path: Path) -> None:
        self.channel = _channel(path)
        self.devices: dict[str, str] = {}
        self.updates = 0
        self.open = True
        watch = self.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch", Empty.SerializeToString, ListAndWatchResponse.FromString
        )
        self._stream = watch(Empty())
        self._thread = threading.Thread(target=self._read, name="fake kubelet's stream")
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self._stream:
                self.devices = {device.ID: device.health for device in message.devices}
                self.updates += 1
        except grpc.RpcError:
            pass
        self.open = False

    def call(self, name: str, request: Any, reads: Callable[[bytes], Any]) -> Any:
        """One call of the device plugin's service."""
        method = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{name}", type(request).SerializeToString, reads
        )
        return method(request, timeout=scaled(CALL_S))

    def close(self) -> None:
        self._stream.cancel()
        self.channel.close()
        self._thread.join(scaled(CALL_S))


class FakeKubelet:
    """Runs from `start` to `stop`; both may be called again: a restart."""

    def __init__(self, folder: Path, *, classic: bool = False, refuses: str = "") -> None:
        self.folder = folder
        self.classic = classic
        self.refuses = refuses
        self.endpoint: Endpoint | None = None
        self.registrations = 0
        self._seen: dict[Path, int] = {}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._server: grpc.Server | None = None

    @property
    def allocatable(self) -> int:
        """Healthy units of a plugin whose stream is open."""
        endpoint = self.endpoint
        if endpoint is None or not endpoint.open:
            return 0
        return sum(health == "Healthy" for health in endpoint.devices.values())

    @property
    def capacity(self) -> int:
        return len(self.endpoint.devices) if self.endpoint is not None else 0

    def start(self) -> None:
        self._ending = threading.Event()
        self._seen = {}
        if self.classic:
            for path in self.folder.iterdir():
                path.unlink()
            self._serve()
        else:
            self._thread = threading.Thread(target=self._watch, name="fake kubelet's watcher")
            self._thread.start()

    def stop(self) -> None:
        """As if it were killed: streams end, sockets stay."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(scaled(CALL_S))
        if self._server is not None:
            self._server.stop(None).wait(scaled(CALL_S))
        self._replace(None)

    def forget(self) -> None:
        """Drop the stream and tell nobody, as the kubelet does when an older plugin of the resource ends."""
        if self.endpoint is not None:
            self.endpoint.close()

    def allocate(self, *containers: list[str]) -> Any:
        assert self.endpoint is not None
        wanted = AllocateRequest(container_requests=[{"devices_ids": names} for names in containers])
        return self.endpoint.call("Allocate", wanted, AllocateResponse.FromString)

    def options(self) -> Any:
        assert self.endpoint is not None
        return self.endpoint.call("GetDevicePluginOptions", Empty(), DevicePluginOptions.FromString)

    def _watch(self) -> None:
        while not self._ending.wait(LOOK_S):
            self.look()

    def look(self, limit_s: float = 1.0) -> None:
        """One look of the plugin watcher, with a limit for each answer; the real one looks each second."""
        found = {}
        for path in self.folder.iterdir():
            try:
                if path.is_socket() and not path.name.startswith("."):
                    found[path] = path.lstat().st_ino
            except OSError:
                continue
        new = found.keys() - self._seen.keys()
        for path in [path for path, inode in self._seen.items() if found.get(path) != inode]:
            del self._seen[path]
            self._replace(None)
        for path in new:
            if self._register(path, scaled(limit_s)):
                self._seen[path] = found[path]

    def _register(self, path: Path, limit_s: float) -> bool:
        with _channel(path) as channel:
            try:
                info = channel.unary_unary(
                    "/pluginregistration.Registration/GetInfo",
                    InfoRequest.SerializeToString,
                    PluginInfo.FromString,
                )(InfoRequest(), timeout=limit_s)
                assert (info.type, info.name) == ("DevicePlugin", "bitfusion.io/gpu")
                assert (info.endpoint, list(info.supported_versions)) == ("", ["v1beta1"])
                status = RegistrationStatus(plugin_registered=not self.refuses, error=self.refuses)
                channel.unary_unary(
                    "/pluginregistration.Registration/NotifyRegistrationStatus",
                    RegistrationStatus.SerializeToString,
                    RegistrationStatusResponse.FromString,
                )(status, timeout=limit_s)
            except grpc.RpcError:
                return False
        if not self.refuses:
            self._replace(Endpoint(path))
        return True

    def _replace(self, endpoint: Endpoint | None) -> None:
        before, self.endpoint = self.endpoint, endpoint
        if before is not None:
            before.close()
        self.registrations += endpoint is not None

    def _serve(self) -> None:
        def register(request: Any, context: Any) -> Any:
            assert (request.version, request.resource_name) == ("v1beta1", "bitfusion.io/gpu")
            self._replace(Endpoint(self.folder / request.endpoint))
            return Empty()

        methods = {
            "Register": grpc.unary_unary_rpc_method_handler(
                register, RegisterRequest.FromString, Empty.SerializeToString
            )
        }
        server = grpc.server(ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", methods),)
        )
        server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        server.start()
        self._server = server
