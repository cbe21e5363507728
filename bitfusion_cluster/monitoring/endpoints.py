"""Monitoring: /healthz and /readyz, on the TLS port of admission, too, and /metrics on the plain port only.

The TLS port is open to the whole cluster, and what /metrics shows costs time to make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest

from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW
from bitfusion_cluster.program.http_connections import FEW
from bitfusion_cluster.program.http_service import HttpService, Response, Route, plain

Conditions = Mapping[str, Callable[[], bool]]


def health_routes(conditions: Conditions) -> dict[str, Route]:
    """``/healthz``: the loop runs. ``/readyz``: 200 when all conditions hold, else 503 and which do not."""

    def ready(body: bytes) -> Response:
        missing = [name for name, holds in conditions.items() if not holds()]
        return plain(503, "not ready: " + ", ".join(missing)) if missing else plain(200, "ok")

    return {"/healthz": Route("GET", lambda body: plain(200, "ok")), "/readyz": Route("GET", ready)}


def metrics_route(registry: CollectorRegistry) -> dict[str, Route]:
    """``/metrics`` in Prometheus' text format."""
    return {
        "/metrics": Route("GET", lambda body: Response(200, generate_latest(registry), CONTENT_TYPE_LATEST))
    }


class MonitoringServer(HttpService):
    """The plain listener. Made by the controller before anything else, so that a probe finds it."""

    def __init__(self, conditions: Conditions, registry: CollectorRegistry) -> None:
        closed = Counter(
            "bitfusion_monitoring_connections_closed",
            "Connections to this port that were rejected: too_many, or too_slow to send a request.",
            ("reason",),
            registry=registry,
        )
        for reason in (TOO_MANY, TOO_SLOW):
            closed.labels(reason)
        super().__init__(
            {**health_routes(conditions), **metrics_route(registry)},
            on_closed=lambda why: closed.labels(why).inc(),
            most=FEW,
        )
