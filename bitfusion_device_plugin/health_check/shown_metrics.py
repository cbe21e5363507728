"""Figures of one run at /metrics, for as long as a scrape needs: a job lives too short for one otherwise."""

from __future__ import annotations

import asyncio
import signal

from prometheus_client import CollectorRegistry, Gauge

from bitfusion_client.command.client_reports import TAGS, HealthReport
from bitfusion_client.one_line import one_line
from bitfusion_cluster.monitoring.endpoints import MonitoringServer
from bitfusion_cluster.monitoring.metrics import new_registry
from bitfusion_device_plugin.health_check.verdict import RESULTS, Verdict

MOST_SERVERS = 200
_LONGEST_NAME = 100


def figures(report: HealthReport, found: Verdict, now: float) -> CollectorRegistry:
    """What is shown; `now` in seconds since the epoch. Servers beyond `MOST_SERVERS` are left out."""
    registry = new_registry("bitfusion_health_check_info")
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


def show(registry: CollectorRegistry, address: str, port: int, seconds: float) -> None:
    """Serve the figures for so long, or until SIGTERM or SIGINT. Raises OSError where the port is taken."""
    asyncio.run(_show(registry, address, port, seconds))


async def _show(registry: CollectorRegistry, address: str, port: int, seconds: float) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = MonitoringServer({}, registry)
    await server.start(address, port)
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except asyncio.TimeoutError:
        pass
    finally:
        await server.stop(0.5)
