"""Prometheus metrics of the identity controller; namespaces are never labels, their number is not bounded."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from bitfusion_cluster.monitoring.metrics import kinds_on

READY, NO_ROLE, FOREIGN, NO_TOKEN, FAILED = "ready", "no_role", "foreign_secret", "no_token", "failed"
STATES = (READY, NO_ROLE, FOREIGN, NO_TOKEN, FAILED)
DONE, CONFLICT, ERROR = "done", "conflict", "error"


class IdentityMetrics:
    """What the leader has done, and how its namespaces are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge, _ = kinds_on(registry)
        self.steps = counter(
            "bitfusion_identity_steps",
            "Actions for namespaces, by step (create, update, remove, revoke) and result.",
            ("step", "result"),
        )
        self._namespaces = gauge(
            "bitfusion_identity_namespaces",
            "Namespaces that are served, by state: ready, no_role (the Role is missing there), "
            "foreign_secret, no_token (the pool issues none), failed (the API server refuses).",
            ("state",),
        )
        self.leader = gauge("bitfusion_identity_leader", "1 on the replica that holds the Lease.")
        self.source = gauge(
            "bitfusion_identity_source_readable",
            "1 while the issuer's files, or the files that are handed out, can be read.",
        )
        self.next_end = gauge(
            "bitfusion_identity_next_renewal_timestamp_seconds",
            "When the next token is due for renewal, as Unix time; in the past if it could not be renewed; "
            "0 if there is none.",
        )
        self.show({}, 0.0)

    def show(self, states: Mapping[str, str], next_renewal: float) -> None:
        """The states of all namespaces by name, and when the next renewal is due."""
        found = list(states.values())
        for state in STATES:
            self._namespaces.labels(state).set(found.count(state))
        self.next_end.set(next_renewal)
