"""Prometheus metrics of a service. Every name begins with ``bitfusion_pool_``.

Holders are labels within the bounds of `holder_usage`, users of the machine only where its administrator
wants them to be (docs/decisions/0108-holders-in-metrics.md). Without a port nobody reads them, and `Metrics`
counts nothing; prometheus-client is then not needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.service.monitoring.holder_usage import NOBODY, HolderUsage, Row, Seen

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

MIB = 1 << 20
HOLDER_LABELS = ("holder", "namespace", "notebook")
WAIT_BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)


class ServerCapacity(NamedTuple):
    """A server's GPUs; `free_gpus` counts the free part of each. A device that shrank has nothing free."""

    server: str
    gpus: int
    free_gpus: float
    memory_mib: int
    free_mib: int


class Metrics:
    """What happens in a service, told to nobody."""

    @property
    def wants_usage(self) -> bool:
        """Whether `usage` is to be called."""
        return False

    def usage(self, entries: Iterable[Seen], servers: Sequence[ServerCapacity]) -> None:
        """The ledger has changed: its entries, and what each server has free."""

    def connections(self, count: int) -> None:
        """So many clients are connected."""

    def entries(self, states: Mapping[str, str]) -> None:
        """The entries of the ledger, by id, have these states."""

    def granted(self, waited_s: float) -> None:
        """A request was granted after so many seconds."""

    def refused(self, code: str) -> None:
        """Something was refused, with a code of `refusal_codes`."""

    def handshake_delayed(self) -> None:
        """A connection from another machine had to wait, because its address makes so many."""

    def connected(self, route: str) -> None:
        """A client on another machine was let in, by a route of `Welcome`: ``direct`` or ``indirect``."""

    def resumed(self) -> None:
        """A client on another machine came back to a lease or request."""

    def lost(self, why: str) -> None:
        """A lease or request over the network ended without its client; why is one of `remote_leases`."""

    def tokens(self, action: str, count: int = 1) -> None:
        """An issuer has changed so many tokens: ``issued``, ``renewed`` or ``revoked``."""


class PrometheusMetrics(Metrics):
    """The same, counted on a registry."""

    def __init__(self, registry: CollectorRegistry, holders: str = NOBODY) -> None:
        """`holders`: whose GPUs are told apart, in the words of `holder_usage`."""
        from prometheus_client import Counter, Gauge, Histogram

        self._usage = UsageCollector(holders)
        registry.register(self._usage)

        self._connections = Gauge(
            "bitfusion_pool_connections", "Clients that are connected.", registry=registry
        )
        self._leases = Gauge("bitfusion_pool_leases", "Leases that are held.", registry=registry)
        self._waiting = Gauge("bitfusion_pool_waiting", "Requests that wait.", registry=registry)
        self._waits = Histogram(
            "bitfusion_pool_wait_seconds",
            "From a request to its grant.",
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._refusals = Counter(
            "bitfusion_pool_refusals", "What was refused, by reason.", ("code",), registry=registry
        )
        self._handshakes_delayed = Counter(
            "bitfusion_pool_handshakes_delayed",
            "TLS handshakes that waited for their turn, or got none, because their address makes so many.",
            registry=registry,
        )
        self._connected = Counter(
            "bitfusion_pool_remote_connected",
            "Clients on other machines that were let in, directly or through a proxy (indirect).",
            ("route",),
            registry=registry,
        )
        self._resumed = Counter(
            "bitfusion_pool_remote_resumed",
            "Leases and requests over the network to which a client came back.",
            registry=registry,
        )
        self._lost = Counter(
            "bitfusion_pool_remote_lost",
            "Leases and requests over the network that ended without their client, by reason.",
            ("reason",),
            registry=registry,
        )
        self._tokens = Counter(
            "bitfusion_pool_tokens",
            "Tokens that issuers issued, renewed and revoked over the network.",
            ("action",),
            registry=registry,
        )

    @property
    def wants_usage(self) -> bool:
        """See `Metrics`."""
        return True

    def usage(self, entries: Iterable[Seen], servers: Sequence[ServerCapacity]) -> None:
        """See `Metrics`."""
        self._usage.update(entries, servers)

    def connections(self, count: int) -> None:
        """See `Metrics`."""
        self._connections.set(count)

    def entries(self, states: Mapping[str, str]) -> None:
        """See `Metrics`."""
        found = list(states.values())
        self._leases.set(found.count(HELD))
        self._waiting.set(found.count(WAITING))

    def granted(self, waited_s: float) -> None:
        """See `Metrics`."""
        self._waits.observe(waited_s)

    def refused(self, code: str) -> None:
        """See `Metrics`."""
        self._refusals.labels(code).inc()

    def handshake_delayed(self) -> None:
        """See `Metrics`."""
        self._handshakes_delayed.inc()

    def connected(self, route: str) -> None:
        """See `Metrics`."""
        self._connected.labels(route).inc()

    def resumed(self) -> None:
        """See `Metrics`."""
        self._resumed.inc()

    def lost(self, why: str) -> None:
        """See `Metrics`."""
        self._lost.labels(why).inc()

    def tokens(self, action: str, count: int = 1) -> None:
        """See `Metrics`."""
        self._tokens.labels(action).inc(count)


class UsageCollector:
    """Who holds what, and what is free, made when Prometheus asks: GPU-seconds go on between two changes.

    The service's loop updates it, and the thread that serves metrics reads it.
    """

    def __init__(self, holders: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`holders`: as in `PrometheusMetrics`."""
        self._lock = threading.Lock()
        self._clock = clock
        self._with_holders = holders != NOBODY
        self._usage = HolderUsage(holders, clock())
        self._servers: Sequence[ServerCapacity] = ()

    def update(self, entries: Iterable[Seen], servers: Sequence[ServerCapacity]) -> None:
        """See `Metrics.usage`."""
        with self._lock:
            self._usage.update(entries, self._clock())
            self._servers = servers

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry: asked before there is anything."""
        return self._families([], (), 0.0)

    def collect(self) -> Iterable[Metric]:
        """All samples as they are now."""
        with self._lock:
            now = self._clock()
            rows = self._usage.rows(now) if self._with_holders else []
            servers, all_gpu_seconds = self._servers, self._usage.all_gpu_seconds(now)
        return self._families(rows, servers, all_gpu_seconds)

    def _families(
        self, rows: Sequence[Row], servers: Sequence[ServerCapacity], all_gpu_seconds: float
    ) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        total = CounterMetricFamily(
            "bitfusion_pool_gpu_seconds", "GPUs x share x seconds that were leased, of everybody together."
        )
        total.add_metric((), all_gpu_seconds)
        yield total
        for name, text, column in HOLDER_GAUGES:
            gauge = GaugeMetricFamily(f"bitfusion_pool_{name}", text, labels=HOLDER_LABELS)
            for row in rows:
                gauge.add_metric(row.key, getattr(row, column))
            yield gauge
        for name, text, column in HOLDER_COUNTERS:
            counter = CounterMetricFamily(f"bitfusion_pool_{name}", text, labels=HOLDER_LABELS)
            for row in rows:
                counter.add_metric(row.key, getattr(row, column))
            yield counter
        for name, text, value in CAPACITY_GAUGES:
            gauge = GaugeMetricFamily(f"bitfusion_pool_{name}", text, labels=("server",))
            for server in servers:
                gauge.add_metric((server.server,), value(server))
            yield gauge


HOLDER_GAUGES = (
    ("holder_gpus", "GPUs that a holder has, a half as 0.5.", "gpus"),
    ("holder_waiting", "Requests of a holder that wait.", "waiting"),
)
HOLDER_COUNTERS = (
    ("holder_gpu_seconds", "GPUs x share x seconds that a holder has had.", "gpu_seconds"),
    ("holder_grants", "Requests of a holder that were granted.", "grants"),
    ("holder_wait_seconds", "Seconds that the granted requests of a holder had waited.", "wait_seconds"),
)
CAPACITY_GAUGES: tuple[tuple[str, str, Callable[[ServerCapacity], float]], ...] = (
    ("gpus", "GPUs of a server.", lambda server: server.gpus),
    ("free_gpus", "GPUs of a server that are free, a free half as 0.5.", lambda server: server.free_gpus),
    ("memory_bytes", "GPU memory of a server.", lambda server: server.memory_mib * MIB),
    ("free_memory_bytes", "GPU memory of a server that is free.", lambda server: server.free_mib * MIB),
)
