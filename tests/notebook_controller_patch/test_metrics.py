"""Names and labels of the metrics, which dashboards and alerts use."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from notebook_controller_patch.metrics import AdmissionMetrics, ReconcileMetrics, WatchMetrics

NAMES = {
    "bitfusion_admission_reviews": ("webhook", "outcome"),
    "bitfusion_admission_duration_seconds": ("webhook",),
    "bitfusion_admission_bad_requests": ("status",),
    "bitfusion_admission_lookups": ("result",),
    "bitfusion_admission_live_lookup_duration_seconds": (),
    "bitfusion_admission_in_flight": (),
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
    "bitfusion_watch_last_contact_timestamp_seconds": ("resource",),
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
    for metric in (metric for part in parts for metric in vars(part).values()):
        labels = NAMES[metric.describe()[0].name]
        if labels:
            metric.labels(**dict.fromkeys(labels, "x"))  # ValueError if these are not its labels
    assert len(list(registry.collect())) == len(NAMES)


def test_contact_is_the_time_of_now(registry: CollectorRegistry) -> None:
    other = CollectorRegistry()
    metrics = WatchMetrics(other)
    name, labels = "bitfusion_watch_last_contact_timestamp_seconds", {"resource": "notebooks"}
    assert other.get_sample_value(name, labels) is None
    metrics.note_contact("notebooks")
    assert (other.get_sample_value(name, labels) or 0) > 1_700_000_000
