"""A reconciler in the test process, without webhooks and behind a TCP proxy; counts the requests it sends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.leading.election import Candidate, LeaseTimes
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.watched_resource import WatchLimits
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics
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
        limits: WatchLimits,
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
            ReconcileContext(
                api=KubernetesApi.load(str(path), self._count),
                candidate=Candidate(
                    namespace,
                    "outage",
                    "in-process",
                    LeaseTimes(duration=6, renew_within=4, retry=1, timeout=(1, 2)),
                ),
                rules=lambda: DEFAULT_RULES,
                metrics=ReconcileMetrics(self.registry),
                watch_metrics=WatchMetrics(self.registry),
                watch_limits=limits,
            )
        )

    def _count(self, method: str, path: str) -> None:
        with self._lock:
            self.sent += 1

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
    limits: WatchLimits,
    token: Path | None = None,
) -> Iterator[Reconciler]:
    running = Reconciler(cluster, proxy, room.namespace, folder, limits, token)
    running.service.start()
    try:
        yield running
    finally:
        running.service.stop(10)


def api_port(cluster: Cluster) -> int:
    return int(cluster.server.rpartition(":")[2])
