"""Prometheus metrics of a service. Every name begins with ``bitfusion_pool_``; users are never labels.

Without a port nobody reads them, and `Metrics` counts nothing; prometheus-client is then not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bitfusion_pool.ledger.entries import HELD, WAITING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

WAIT_BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)


class Metrics:
    """What happens in a service, told to nobody."""

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

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

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
