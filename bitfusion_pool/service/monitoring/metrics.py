"""Prometheus metrics of a service. Every name begins with ``bitfusion_pool_``.

Holders are labels within the bounds of `holder_usage`, users of the machine only where its administrator
wants them to be (docs/decisions/0108-holders-in-metrics.md). Without a port nobody reads them, and nothing is
counted; prometheus-client is then not needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW
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


class _Unread:
    """Stands in for every counter, gauge and histogram where nobody reads them: takes all, keeps nothing."""

    def __init__(self, *args: object, **options: object) -> None:
        """As those of prometheus_client are made."""

    def labels(self, *values: str) -> _Unread:
        """The same for every label."""
        return self

    def set(self, value: float) -> None:
        """Nothing."""

    def inc(self, amount: float = 1) -> None:
        """Nothing."""

    def observe(self, value: float) -> None:
        """Nothing."""


def _kinds(registry: CollectorRegistry | None) -> tuple[Any, Any, Any]:
    """Counter, gauge and histogram of a registry; prometheus-client need not be there where nobody reads."""
    if registry is None:
        return _Unread, _Unread, _Unread
    from prometheus_client import Counter, Gauge, Histogram

    counter, gauge, histogram = (partial(kind, registry=registry) for kind in (Counter, Gauge, Histogram))
    return counter, gauge, histogram


class Metrics:
    """What happens in a service, counted on a registry; without one it is told to nobody.

    Each attribute is a counter, gauge or histogram of prometheus_client, whose text says what it counts.
    `usage` is told of each change of the ledger where `wants_usage` says so.
    """

    def __init__(self, registry: CollectorRegistry | None = None, holders: str = NOBODY) -> None:
        """`holders`: whose GPUs are told apart, in the words of `holder_usage`."""
        self.wants_usage = registry is not None
        self.usage = UsageCollector(holders)
        if registry is not None:
            registry.register(self.usage)
        counter, gauge, histogram = _kinds(registry)
        self.connections = gauge("bitfusion_pool_connections", "Clients that are connected.")
        self.leases = gauge("bitfusion_pool_leases", "Leases that are held.")
        self.waiting = gauge("bitfusion_pool_waiting", "Requests that wait.")
        self.waits = histogram(
            "bitfusion_pool_wait_seconds", "From a request to its grant.", buckets=WAIT_BUCKETS
        )
        self.refusals = counter("bitfusion_pool_refusals", "What was refused, by reason.", ("code",))
        self.handshakes_delayed = counter(
            "bitfusion_pool_handshakes_delayed",
            "TLS handshakes that waited for their turn, or got none, because their address makes so many.",
        )
        self.metrics_connections_closed = counter(
            "bitfusion_pool_metrics_connections_closed",
            "Connections to this port that were sent away: too_many, or too_slow to ask anything.",
            ("reason",),
        )
        for reason in (TOO_MANY, TOO_SLOW):
            self.metrics_connections_closed.labels(reason)
        self.connected = counter(
            "bitfusion_pool_remote_connected",
            "Clients on other machines that were let in, directly or through a proxy (indirect).",
            ("route",),
        )
        self.resumed = counter(
            "bitfusion_pool_remote_resumed",
            "Leases and requests over the network to which a client came back.",
        )
        self.lost = counter(
            "bitfusion_pool_remote_lost",
            "Leases and requests over the network that ended without their client, by reason.",
            ("reason",),
        )
        self.tokens = counter(
            "bitfusion_pool_tokens",
            "Tokens that issuers issued, renewed and revoked over the network.",
            ("action",),
        )

    def entries(self, states: Mapping[str, str]) -> None:
        """The entries of the ledger, by id, have these states."""
        found = list(states.values())
        self.leases.set(found.count(HELD))
        self.waiting.set(found.count(WAITING))

    def activity(self, entry_id: str, idle_since: float | None) -> None:
        """The kernel under an entry is idle since then (None: it is not), in seconds since the epoch."""
        if self.wants_usage:
            self.usage.activity(entry_id, idle_since)


class UsageCollector:
    """Who holds what, and what is free, made when Prometheus asks: GPU-seconds go on between two changes.

    The service's loop updates it, and the thread that serves metrics reads it.
    """

    def __init__(self, holders: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`holders`: as in `Metrics`."""
        self._lock = threading.Lock()
        self._clock = clock
        self._with_holders = holders != NOBODY
        self._usage = HolderUsage(holders, clock())
        self._servers: Sequence[ServerCapacity] = ()

    def update(self, entries: Iterable[Seen], servers: Sequence[ServerCapacity]) -> None:
        """The ledger has changed: its entries, and what each server has free."""
        with self._lock:
            self._usage.update(entries, self._clock())
            self._servers = servers

    def activity(self, entry_id: str, idle_since: float | None) -> None:
        """See `Metrics.activity`."""
        with self._lock:
            self._usage.activity(entry_id, idle_since, self._clock())

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
        for kind, name, text in HOLDER_FAMILIES:
            family = (GaugeMetricFamily if kind == "gauge" else CounterMetricFamily)(
                f"bitfusion_pool_holder_{name}", text, labels=HOLDER_LABELS
            )
            for row in rows:
                value = getattr(row, name)
                if value is not None:
                    family.add_metric(row.key, value)
            yield family
        for name, text, of_server in CAPACITY_GAUGES:
            gauge = GaugeMetricFamily(f"bitfusion_pool_{name}", text, labels=("server",))
            for server in servers:
                gauge.add_metric((server.server,), of_server(server))
            yield gauge


HOLDER_FAMILIES = (
    ("gauge", "gpus", "GPUs that a holder has, a half as 0.5."),
    ("gauge", "waiting", "Requests of a holder that wait."),
    ("counter", "gpu_seconds", "GPUs x share x seconds that a holder has had."),
    ("counter", "grants", "Requests of a holder that were granted."),
    ("counter", "wait_seconds", "Seconds that the granted requests of a holder had waited."),
    ("gauge", "idle_gpus", "Those of a holder's GPUs whose kernel says that it is idle, a half as 0.5."),
    ("counter", "idle_gpu_seconds", "GPUs x share x seconds that a holder has had with an idle kernel."),
    ("gauge", "since_timestamp_seconds", "When the oldest lease of a holder was granted, as Unix time."),
    (
        "gauge",
        "idle_since_timestamp_seconds",
        "Since when the kernel of a holder is idle that is so the longest, as Unix time.",
    ),
)
CAPACITY_GAUGES: tuple[tuple[str, str, Callable[[ServerCapacity], float]], ...] = (
    ("gpus", "GPUs of a server.", lambda server: server.gpus),
    ("free_gpus", "GPUs of a server that are free, a free half as 0.5.", lambda server: server.free_gpus),
    ("memory_bytes", "GPU memory of a server.", lambda server: server.memory_mib * MIB),
    ("free_memory_bytes", "GPU memory of a server that is free.", lambda server: server.free_mib * MIB),
)
