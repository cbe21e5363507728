"""Figures of one run, for a Pushgateway: a job lives too short to be scraped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from bitfusion_client.client_reports import TAGS, HealthReport
from bitfusion_client.one_line import one_line
from bitfusion_device_plugin.health_check.verdict import RESULTS, Verdict

MOST_SERVERS = 200
JOB = "bitfusion_health"
LIMIT_S = 10.0
_LONGEST_NAME = 100


def figures(report: HealthReport, found: Verdict, now: float) -> CollectorRegistry:
    """What is pushed; `now` in seconds since the epoch. Servers beyond `MOST_SERVERS` are left out."""
    registry = CollectorRegistry()
    checks = Gauge(
        "bitfusion_health_checks",
        "Checks of the last run, by server and tag of the report; localhost is the client's own machine.",
        ("server", "tag"),
        registry=registry,
    )
    for section in report.sections[:MOST_SERVERS]:
        totals = dict(section.totals)
        for tag in TAGS:
            checks.labels(one_line(section.name, _LONGEST_NAME), tag).set(totals.get(tag, 0))
    Gauge(
        "bitfusion_health_result",
        "The last run: 0 passed, 1 something is marginal, 2 fatal, 3 the pool could not be checked.",
        registry=registry,
    ).set(RESULTS.index(found.result))
    Gauge(
        "bitfusion_health_last_run_timestamp_seconds",
        "When the last run ended, as Unix time.",
        registry=registry,
    ).set(now)
    return registry


def push(address: str, registry: CollectorRegistry) -> None:
    """Replace what the Pushgateway has of this job. Raises OSError."""
    from prometheus_client import push_to_gateway

    push_to_gateway(address, JOB, registry, timeout=LIMIT_S)
