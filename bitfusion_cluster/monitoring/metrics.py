"""Prometheus metrics that several programs have: names, labels, buckets; each begins with ``bitfusion_``.

The classes hold the metrics of one part each, on a registry that is given: a test makes its own, a
program one for ``/metrics``. Objects are never labels: their number is not bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW
from bitfusion_client.version import VERSION

# seconds; the apiserver gives a review 5 s, a usual one takes less than 1 ms
REVIEW_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
LOOKUP_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)

UNCHANGED, PATCHED, REFUSED, FAILED = "unchanged", "patched", "refused", "failed"
CACHED, LIVE, GONE = "cached", "live", "gone"  # look-ups; FAILED is one, too
REACHED, UNREACHED, NOT_ASKED, NOT_KNOWN = "reached", "unreached", "not_asked", "not_known"  # self-checks
LOOKUP_TIMEOUT, LOOKUP_NO_ANSWER = "timeout", "no_answer"
LOOKUP_FORBIDDEN, LOOKUP_REFUSED = "forbidden", "refused"


def kinds_on(
    registry: CollectorRegistry,
) -> tuple[partial[Counter], partial[Gauge], partial[Histogram]]:
    """What makes counters, gauges and histograms that this registry shows."""
    return (
        partial(Counter, registry=registry),
        partial(Gauge, registry=registry),
        partial(Histogram, registry=registry),
    )


def new_registry(info: str) -> CollectorRegistry:
    """The metrics of a process, with those of the interpreter; `info` names the one with its version."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    gauge = Gauge(info, "Always 1.", ("version",), registry=registry)
    gauge.labels(VERSION).set(1)
    return registry


class AdmissionMetrics:
    """Reviews answered, what could not be read as one, and look-ups of Notebooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge, histogram = kinds_on(registry)
        self.reviews = counter(
            "bitfusion_admission_reviews",
            "Reviews answered, by answer; failed: a bug, the object was admitted unchanged.",
            ("webhook", "outcome"),
        )
        self.seconds = histogram(
            "bitfusion_admission_duration_seconds",
            "Time from the complete review to its answer, look-up included.",
            ("webhook",),
            buckets=REVIEW_BUCKETS,
        )
        self.bad_requests = counter(
            "bitfusion_admission_bad_requests",
            "Requests that were not reviews, by the status they got.",
            ("status",),
        )
        self.lookups = counter(
            "bitfusion_admission_lookups",
            "Notebooks looked up: cached (no pod starts, so the watch cache does), live (the apiserver "
            "answered), gone (it answered that there is no such Notebook), failed (it could not say).",
            ("result",),
        )
        self.lookup_failures = counter(
            "bitfusion_admission_lookup_failures",
            "Live look-ups that failed, by reason (timeout, no_answer, forbidden, refused) and by what "
            "decided instead: cache, or nothing where that did not know the Notebook (of a pod: what it says "
            "itself).",
            ("reason", "decided_by"),
        )
        self.lookup_seconds = histogram(
            "bitfusion_admission_live_lookup_duration_seconds",
            "Duration of the live look-ups.",
            buckets=LOOKUP_BUCKETS,
        )
        self.in_flight = gauge("bitfusion_admission_in_flight", "Reviews being answered now.")
        self.connections_closed = counter(
            "bitfusion_admission_connections_closed",
            "Connections to the webhooks' port that were rejected: too_many, or too_slow to send a request.",
            ("reason",),
        )
        for reason in (TOO_MANY, TOO_SLOW):  # there from the start, for queries that look for a change
            self.connections_closed.labels(reason)
        self.self_checks = counter(
            "bitfusion_admission_self_checks",
            "Dry runs that make the API server call the webhooks: reached, unreached (it could "
            "not), not_asked (its webhook configuration has no self-check), not_known (it did not say).",
            ("result",),
        )
        self.reachable = gauge(
            "bitfusion_admission_reachable",
            "1 while the API server reaches the webhooks, 0 while it does not, -1 before that is known.",
        )


class WatchMetrics:
    """The list and watch loops, by resource (``notebooks``, ``statefulsets``, …)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge, _ = kinds_on(registry)
        self.lists = counter("bitfusion_watch_lists", "Complete lists read.", ("resource",))
        self.queries = counter(
            "bitfusion_watch_queries",
            "Requests to the apiserver: pages of listings and watches opened.",
            ("resource", "kind"),
        )
        self.events = counter(
            "bitfusion_watch_events", "Events received, bookmarks included.", ("resource", "type")
        )
        self.restarts = counter(
            "bitfusion_watch_restarts",
            "Watches that ended: timeout (as asked), closed, gone (410), broken, garbled, refused, failed.",
            ("resource", "reason"),
        )
        self.synced = gauge("bitfusion_watch_synced", "1 once everything has been read.", ("resource",))
        self.objects = gauge("bitfusion_watch_objects", "Objects in the cache.", ("resource",))
        self._ages: dict[str, Callable[[], float]] = {}
        self.age = gauge(
            "bitfusion_watch_cache_age_seconds",
            "Seconds since the apiserver last confirmed the cache: by a complete list, an event, a "
            "bookmark, or "
            "the end of a watch in which nothing happened. Usually below 90.",
            ("resource",),
        )

    def show_age(self, resource: str, seconds: Callable[[], float]) -> None:
        """Report this age, in place of any other of that resource."""
        self._ages[resource] = seconds
        self.age.labels(resource).set_function(seconds)

    def hide_age(self, resource: str, seconds: Callable[[], float]) -> None:
        """Report this age no longer: its cache is not filled any more, and not asked either."""
        if self._ages.get(resource) == seconds:
            del self._ages[resource]
            self.age.remove(resource)
