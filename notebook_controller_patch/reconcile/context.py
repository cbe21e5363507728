"""What all parts of one replica's reconciler share: API client, Lease, image rules, metrics, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bitfusion_client.kubernetes.client_images import ImageRule
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.leading.election import Candidate
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.watched_resource import WatchLimits
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics

WORKERS = 2


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Made once by the controller for `ReconcileService`, which hands it down.

    Attributes:
        candidate: Which Lease decides who reconciles, and the name of this replica.
        rules: Asked for the image rules each time they are needed.
        watch_limits: Shorter in tests.
        workers: Threads that reconcile while this replica leads.
        quota_keys: By which ResourceQuotas count the GPUs of GPU pods; with some, others are told.
    """

    api: KubernetesApi
    candidate: Candidate
    rules: Callable[[], Sequence[ImageRule]]
    metrics: ReconcileMetrics
    watch_metrics: WatchMetrics
    watch_limits: WatchLimits = field(default_factory=WatchLimits)
    workers: int = WORKERS
    quota_keys: tuple[str, ...] = ()
