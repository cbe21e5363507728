"""Prometheus metrics of the controller: names, labels, buckets. Every name begins with ``bitfusion_``.

The classes hold the metrics of one part each, on a registry that is given: a test makes its own, the
controller one for ``/metrics``. Objects are never labels: their number is not bounded.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# seconds; the apiserver gives a review 5 s, a usual one takes less than 1 ms
REVIEW_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
LOOKUP_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
RECONCILE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)

UNCHANGED, PATCHED, REFUSED, FAILED = "unchanged", "patched", "refused", "failed"
HIT, MISS, UNKNOWN = "hit", "miss", "failed"
DONE, CONFLICT, ERROR = "done", "conflict", "error"


class AdmissionMetrics:
    """Reviews answered, what could not be read as one, and look-ups of Notebooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = Counter(
            "bitfusion_admission_reviews",
            "Reviews answered, by what was answered; failed: a bug, the object was let through unchanged.",
            ("webhook", "outcome"),
            registry=registry,
        )
        self.seconds = Histogram(
            "bitfusion_admission_duration_seconds",
            "From the whole review read to its answer written, look-up included.",
            ("webhook",),
            buckets=REVIEW_BUCKETS,
            registry=registry,
        )
        self.bad_requests = Counter(
            "bitfusion_admission_bad_requests",
            "Requests that were no review, by the status they got.",
            ("status",),
            registry=registry,
        )
        self.lookups = Counter(
            "bitfusion_admission_lookups",
            "Notebooks looked up: hit in the watch cache, miss (asked the apiserver), failed (unknown).",
            ("result",),
            registry=registry,
        )
        self.lookup_seconds = Histogram(
            "bitfusion_admission_live_lookup_duration_seconds",
            "Duration of the live look-ups.",
            buckets=LOOKUP_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "bitfusion_admission_in_flight", "Reviews being answered now.", registry=registry
        )


class ReconcileMetrics:
    """The work queue and what the leader does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.runs = Counter(
            "bitfusion_reconcile_runs",
            "Notebooks looked at, by result: done, conflict (again at once), error (again later).",
            ("result",),
            registry=registry,
        )
        self.seconds = Histogram(
            "bitfusion_reconcile_duration_seconds",
            "Duration of one run.",
            buckets=RECONCILE_BUCKETS,
            registry=registry,
        )
        self.actions = Counter(
            "bitfusion_reconcile_actions",
            "Writes to the cluster, by action and by result: done, conflict, error.",
            ("action", "result"),
            registry=registry,
        )
        self.queued = Gauge(
            "bitfusion_reconcile_queued", "Notebooks waiting to be looked at.", registry=registry
        )
        self.pending = Gauge(
            "bitfusion_reconcile_pending_notebooks",
            "Running notebooks with a change that waits for their next start.",
            registry=registry,
        )
        self.leader = Gauge(
            "bitfusion_reconcile_leader", "1 on the replica that holds the Lease.", registry=registry
        )


class WatchMetrics:
    """The list and watch loops, by resource (``notebooks``, ``statefulsets``, …)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lists = Counter(
            "bitfusion_watch_lists", "Full listings finished.", ("resource",), registry=registry
        )
        self.queries = Counter(
            "bitfusion_watch_queries",
            "Requests to the apiserver: pages of listings and watches opened.",
            ("resource", "kind"),
            registry=registry,
        )
        self.events = Counter(
            "bitfusion_watch_events",
            "Events received, bookmarks included.",
            ("resource", "type"),
            registry=registry,
        )
        self.restarts = Counter(
            "bitfusion_watch_restarts",
            "Watches that ended: timeout (as asked), closed, gone (410), broken, garbled, refused, failed.",
            ("resource", "reason"),
            registry=registry,
        )
        self.synced = Gauge(
            "bitfusion_watch_synced", "1 once everything has been read.", ("resource",), registry=registry
        )
        self.objects = Gauge(
            "bitfusion_watch_objects", "Objects in the cache.", ("resource",), registry=registry
        )
        self.last_contact = Gauge(
            "bitfusion_watch_last_contact_timestamp_seconds",
            "When the apiserver last said something on this loop, as Unix time.",
            ("resource",),
            registry=registry,
        )

    def note_contact(self, resource: str) -> None:
        """The apiserver has just said something on this loop."""
        self.last_contact.labels(resource).set(time.time())
