"""A real kube-state-metrics beside a cluster: what Prometheus would be told of its objects."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.cluster.binaries import Binaries
from tests.cluster.cluster import Cluster, fetch
from tests.cluster.components import Component
from tests.support.ports import free_ports


class KubeStateMetrics:
    """One that is not started yet."""

    def __init__(self, cluster: Cluster, binaries: Binaries) -> None:
        self.cluster = cluster
        self._program = str(binaries.path("kube-state-metrics"))
        self._port, self._own_port = free_ports(2)
        self._component: Component | None = None

    def start(self, options: Sequence[str] = ()) -> None:
        """With these options of an admin's, as an account that may read everything; anew where it runs."""
        self.end()
        command = [
            *(self._program, f"--kubeconfig={self.cluster.kubeconfig}", "--host=127.0.0.1"),
            *(f"--port={self._port}", "--telemetry-host=127.0.0.1", f"--telemetry-port={self._own_port}"),
            *options,
        ]
        self._component = self.cluster.component("kube-state-metrics", command, lambda: bool(self._text()))
        self._component.start()

    def end(self) -> None:
        """If it runs."""
        if self._component is not None:
            self._component.kill()

    def samples(self) -> list[Sample]:
        """All that it tells now."""
        return [
            sample for family in text_string_to_metric_families(self._text()) for sample in family.samples
        ]

    def _text(self) -> str:
        return fetch(f"http://127.0.0.1:{self._port}/metrics")
