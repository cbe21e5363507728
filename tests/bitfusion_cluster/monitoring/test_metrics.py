"""Names and labels of the metrics, which dashboards and alerts use."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from bitfusion_cluster.monitoring.metrics import AdmissionMetrics, WatchMetrics
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics

NAMES = {
    "bitfusion_admission_reviews": ("webhook", "outcome"),
    "bitfusion_admission_duration_seconds": ("webhook",),
    "bitfusion_admission_bad_requests": ("status",),
    "bitfusion_admission_lookups": ("result",),
    "bitfusion_admission_lookup_failures": ("reason", "decided_by"),
    "bitfusion_admission_live_lookup_duration_seconds": (),
    "bitfusion_admission_in_flight": (),
    "bitfusion_admission_connections_closed": ("reason",),
    "bitfusion_admission_self_checks": ("result",),
    "bitfusion_admission_reachable": (),
    "bitfusion_reconcile_runs": ("result",),
    "bitfusion_reconcile_duration_seconds": (),
    "bitfusion_reconcile_actions": ("action", "result"),
    "bitfusion_reconcile_queued": (),
    "bitfusion_reconcile_pending_notebooks": (),
    "bitfusion_reconcile_leader": (),
    "bitfusion_watch_lists": ("resource",),
    "bitfusion_watch_queries": ("resource", "kind"),
    "bitfusion_watch_events": ("resource", "type"),
    "bitfusion_watch_restarts": ("resource", "reason"),
    "bitfusion_watch_synced": ("resource",),
    "bitfusion_watch_objects": ("resource",),
    "bitfusion_watch_cache_age_seconds": ("resource",),
}


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    for part in (AdmissionMetrics, ReconcileMetrics, WatchMetrics):
        part(made)
    return made


def test_the_names_are_those_that_dashboards_use(registry: CollectorRegistry) -> None:
    assert {metric.name for metric in registry.collect()} == set(NAMES)


def test_their_labels_are_bounded_words_and_never_objects() -> None:
    registry = CollectorRegistry()
    parts = (AdmissionMetrics(registry), ReconcileMetrics(registry), WatchMetrics(registry))
    values = [value for part in parts for value in vars(part).values()]
    for metric in [value for value in values if isinstance(value, MetricWrapperBase)]:
        labels = NAMES[next(iter(metric.describe())).name]
        if labels:
            metric.labels(**dict.fromkeys(labels, "x"))  # ValueError if these are not its labels
    assert len(list(registry.collect())) == len(NAMES)


def test_an_age_is_shown_as_long_as_its_cache_is_filled() -> None:
    registry = CollectorRegistry()
    metrics = WatchMetrics(registry)

    def shown() -> float | None:
        return registry.get_sample_value("bitfusion_watch_cache_age_seconds", {"resource": "statefulsets"})

    def first() -> float:
        return 61.0

    def second() -> float:
        return 2.5

    assert shown() is None
    metrics.show_age("statefulsets", first)
    assert shown() == 61
    metrics.show_age("statefulsets", second)
    metrics.hide_age("statefulsets", first)  # the end of the loop before, which came late
    assert shown() == 2.5
    metrics.hide_age("statefulsets", second)
    metrics.hide_age("statefulsets", second)
    assert shown() is None
