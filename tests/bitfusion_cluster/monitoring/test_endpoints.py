"""/healthz, /readyz and /metrics: their routes and what they answer."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from bitfusion_cluster.monitoring.endpoints import health_routes, metrics_route
from bitfusion_cluster.program.http_service import Response


def asked(path: str, conditions: dict[str, bool]) -> tuple[int, str]:
    route = health_routes({name: (lambda holds=holds: holds) for name, holds in conditions.items()})[path]  # type: ignore[misc]  # mypy infers no lambda with a default
    assert route.method == "GET"
    answer = route.handler(b"")
    assert isinstance(answer, Response)
    return answer.code, answer.body.decode()


def test_a_process_that_answers_is_healthy_whatever_is_missing() -> None:
    assert asked("/healthz", {"a certificate": False}) == (200, "ok\n")


def test_readiness_names_what_is_missing() -> None:
    assert asked("/readyz", {}) == (200, "ok\n")
    assert asked("/readyz", {"a certificate": True, "the list": True}) == (200, "ok\n")
    told = asked("/readyz", {"a certificate": False, "the list": True, "a port": False})
    assert told == (503, "not ready: a certificate, a port\n")


def test_conditions_are_asked_each_time() -> None:
    ready: list[bool] = [False]
    handler = health_routes({"it": lambda: ready[0]})["/readyz"].handler
    first = handler(b"")
    ready[0] = True
    second = handler(b"")
    assert isinstance(first, Response)
    assert isinstance(second, Response)
    assert (first.code, second.code) == (503, 200)


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("bitfusion_test", "For this test.", registry=registry).inc()
    answer = metrics_route(registry)["/metrics"].handler(b"")
    assert isinstance(answer, Response)
    assert answer.content_type.startswith("text/plain; version=")
    assert "bitfusion_test_total 1.0" in answer.body.decode()
