"""A reconciler in the test process, without webhooks and behind a TCP proxy; counts the requests it sends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_client.client_images import DEFAULT_RULES
from notebook_controller_patch import kubernetes_api
from notebook_controller_patch.kubernetes_api import KubernetesApi
from notebook_controller_patch.metrics import ReconcileMetrics, WatchMetrics
from notebook_controller_patch.reconcile.election import LeaseTimes
from notebook_controller_patch.reconcile.list_watch import Limits
from notebook_controller_patch.reconcile.service import ReconcileService
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.tcp_proxy import TcpProxy


class Reconciler:
    """A reconciler without webhooks, behind a proxy; counts what it sends."""

    def __init__(
        self,
        cluster: Cluster,
        proxy: TcpProxy,
        namespace: str,
        folder: Path,
        limits: Limits,
        token: Path | None,
    ) -> None:
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        if token is not None:
            config["users"][0]["user"] = {"tokenFile": str(token)}
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        self.sent = 0
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        self.service = ReconcileService(
            KubernetesApi.load(str(path)),
            namespace=namespace,
            lease="outage",
            identity="in-process",
            rules=lambda: DEFAULT_RULES,
            watch_metrics=WatchMetrics(self.registry),
            metrics=ReconcileMetrics(self.registry),
            limits=limits,
            times=LeaseTimes(duration=6, renew_within=4, retry=1, timeout=(1, 2)),
        )

    def count(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def request(*arguments: Any) -> Any:
            with self._lock:
                self.sent += 1
            return real(*arguments)

        return request

    def restarts(self) -> dict[str, float]:
        return {
            f"{sample.labels['resource']}: {sample.labels['reason']}": sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "bitfusion_watch_restarts_total"
        }


@contextmanager
def reconciler(
    cluster: Cluster,
    proxy: TcpProxy,
    room: Room,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    token: Path | None = None,
) -> Iterator[Reconciler]:
    running = Reconciler(cluster, proxy, room.namespace, folder, limits, token)
    monkeypatch.setattr(kubernetes_api, "_request", running.count(kubernetes_api._request))
    running.service.start()
    try:
        yield running
    finally:
        running.service.stop(10)


def api_port(cluster: Cluster) -> int:
    return int(cluster.server.rpartition(":")[2])
