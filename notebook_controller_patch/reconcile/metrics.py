"""Prometheus metrics of the reconciler: its work queue and what the leader does."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from bitfusion_cluster.monitoring.metrics import kinds_on

RECONCILE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)  # seconds

DONE, CONFLICT, ERROR = "done", "conflict", "error"


class ReconcileMetrics:
    """The work queue and what the leader does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge, histogram = kinds_on(registry)
        self.runs = counter(
            "bitfusion_reconcile_runs",
            "Notebooks reconciled, by result: done, conflict (retried at once), error (retried later).",
            ("result",),
        )
        self.seconds = histogram(
            "bitfusion_reconcile_duration_seconds",
            "Duration of one reconciliation.",
            buckets=RECONCILE_BUCKETS,
        )
        self.actions = counter(
            "bitfusion_reconcile_actions",
            "Writes to the cluster, by action and by result: done, conflict, error.",
            ("action", "result"),
        )
        self.queued = gauge("bitfusion_reconcile_queued", "Notebooks waiting to be reconciled.")
        self.pending = gauge(
            "bitfusion_reconcile_pending_notebooks",
            "Running notebooks with a change that waits for their next start.",
        )
        self.leader = gauge("bitfusion_reconcile_leader", "1 on the replica that holds the Lease.")
