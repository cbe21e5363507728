"""Whether pods get the queue's scheduling gate: where it is wanted, and the API server knows gates."""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Gauge

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiFailure
from bitfusion_cluster.api.server_version import knows_gates, server_version

AGAIN_S = 600.0  # an upgrade of the cluster is seen so much later
UNKNOWN_AGAIN_S = 30.0

log = logging.getLogger(__name__)


class Gates:
    """`refresh` is called every few seconds, by one thread; `on` is read by any.

    Until the server has told its version gates are written: a server without them drops the field, a pod that
    slipped through would be sold units that others have.

    Args:
        api: Is asked for its version.
        wanted: The setting ``--gates``.
        registry: Gets a metric, which an alert can compare with what is wanted.
    """

    def __init__(self, api: KubernetesApi, wanted: bool, registry: CollectorRegistry) -> None:
        self._api = api
        self._wanted = wanted
        self.on = wanted
        self._due = 0.0
        gauge = Gauge(
            "bitfusion_injector_gates",
            "1: pods that ask for GPUs wait in the queue; 0: --gates is off or the API server is older than "
            "Kubernetes 1.27, so the pool is not protected against overselling.",
            registry=registry,
        )
        gauge.set_function(lambda: float(self.on))

    def refresh(self) -> bool:
        """Ask the server again, if it is time. Whether `on` has changed; never raises for an API away."""
        if not self._wanted or time.monotonic() < self._due:
            return False
        try:
            version = server_version(self._api)
        except ApiFailure as error:
            self._due = time.monotonic() + UNKNOWN_AGAIN_S
            log.debug("the API server did not report its version", extra={"error": str(error)})
            return False
        self._due = time.monotonic() + AGAIN_S
        before, self.on = self.on, knows_gates(version)
        if self.on == before:
            return False
        shown = {"server": ".".join(map(str, version or ()))}
        if self.on:
            log.info("pods wait in the queue again: the API server knows scheduling gates", extra=shown)
        else:
            log.warning(
                "pods get no scheduling gate, so the pool is not protected against overselling: "
                "Kubernetes has gates since 1.27",
                extra=shown,
            )
        return True
