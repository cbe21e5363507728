"""Prometheus metrics of the queue. Notebooks are labels of two of them, in a number that is bounded."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from bitfusion_cluster.monitoring.metrics import kinds_on
from bitfusion_device_plugin.queue.unit_accounts import UnitAccounts

DONE, CONFLICT, ERROR = "done", "conflict", "error"
KEEP, LIFT, TAKE_BACK, SEND_BACK, TELL, EVENT = "keep", "lift", "take_back", "send_back", "tell", "event"
# seconds: from a free pool to a notebook that waits for a day
WAIT_BUCKETS = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class QueueMetrics:
    """What the leader sees and does; a replica that does not lead shows zeros."""

    def __init__(self, registry: CollectorRegistry, accounts: UnitAccounts) -> None:
        counter, gauge, histogram = kinds_on(registry)
        self.pool = gauge(
            "bitfusion_queue_pool_units",
            "Units of the pool: the largest allocatable bitfusion.io/gpu of any node, or --units where no "
            "node could offer any. 0: the pool is away.",
        )
        self.taken = gauge(
            "bitfusion_queue_taken_units",
            "Units reserved for pods at their gate or held by pods without a gate, until the pods are gone "
            "or "
            "finished.",
        )
        self.lost = gauge(
            "bitfusion_queue_lost_units",
            "The part of taken_units held by pods whose node is not ready: taken until somebody declares the "
            "node dead.",
        )
        self.waiting = gauge(
            "bitfusion_queue_waiting_pods", "Pods that are waiting at their gate, for any reason."
        )
        self.unqueued = gauge(
            "bitfusion_queue_unqueued_pods",
            "Pods with units that count and whose gate was never lifted by the queue: made before it was "
            "installed, or past the injector. While it is not 0, more units can be taken than there are.",
        )
        self.protected = gauge(
            "bitfusion_queue_protected",
            "1: the cluster has scheduling gates (Kubernetes 1.27 or newer). 0 on the leader: it has none, "
            "so the pool is not protected against overselling.",
        )
        self.stuck = gauge(
            "bitfusion_queue_stuck_pods",
            "Pods whose gate is lifted and for which no node has been found for --stuck-after. Those that "
            "their controller makes anew go to the end of the queue if others wait; the rest hold them up.",
        )
        self.last_look = gauge(
            "bitfusion_queue_last_look_timestamp_seconds",
            "When the leader last examined all pods, as Unix time; more than a minute ago means that it "
            "does not work.",
        )
        self.leader = gauge("bitfusion_queue_leader", "1 on the replica that holds the Lease.")
        self.writes = counter(
            "bitfusion_queue_writes",
            "Write requests, by step (keep, lift, take_back, send_back, tell, event) and result (done, "
            "conflict, error).",
            ("step", "result"),
        )
        self.wait = histogram(
            "bitfusion_queue_wait_seconds",
            "Time from a pod's creation until its gate is lifted.",
            buckets=WAIT_BUCKETS,
        )
        registry.register(_Accounts(accounts))

    def clear(self) -> None:
        """What this replica saw holds no more: it does not lead."""
        units = self.pool, self.taken, self.lost
        for gauge in (*units, self.waiting, self.unqueued, self.protected, self.stuck):
            gauge.set(0)


class _Accounts(Collector):
    """Read in one piece when it is asked for: a gauge that is set label by label shows half of a change."""

    def __init__(self, accounts: UnitAccounts) -> None:
        self._accounts = accounts

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Both families."""
        labels = ("namespace", "notebook")
        held = GaugeMetricFamily(
            "bitfusion_queue_held_units",
            "Units that a notebook's pods hold; notebook is empty for pods outside of notebooks.",
            labels=labels,
        )
        for holder, units in self._accounts.held.items():
            held.add_metric(holder, units)
        yield held
        seconds = CounterMetricFamily(
            "bitfusion_queue_unit_seconds",
            "Units times seconds that a notebook's pods have held them while this replica led.",
            labels=labels,
        )
        for holder, total in self._accounts.seconds.items():
            seconds.add_metric(holder, total)
        yield seconds
