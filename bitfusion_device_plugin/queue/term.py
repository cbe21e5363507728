"""One term of leadership: watches of pods and nodes; threads that decide, tell, let go who asks nothing."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone

from bitfusion_cluster.api.errors import ApiFailure
from bitfusion_cluster.api.paths import NODES, PODS
from bitfusion_cluster.api.server_version import knows_gates, server_version
from bitfusion_cluster.leading.term import NotLeading, Term
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits
from bitfusion_device_plugin.queue.context import QueueContext
from bitfusion_device_plugin.queue.idle_pods import IdlePods
from bitfusion_device_plugin.queue.leader import Caches, QueueLeader
from bitfusion_device_plugin.queue.pod_states import FINISHED_PHASES, PodState, QueuedPod, queued_pod
from bitfusion_device_plugin.queue.teller import Teller
from bitfusion_device_plugin.queue.unit_accounts import NodeUnits, node_units

BATCH_S = 0.05  # that changes are collected for, so that a thousand pods at once are a few steps …
BATCH_SHARE = 4  # … and so many times as long as the last step took: deciding takes a fifth of a core at most
RETRY_S = 1.0
PAGE = 200  # pods in one page of a list: they are larger than Notebooks
UNFINISHED = ",".join(f"status.phase!={phase}" for phase in FINISHED_PHASES)  # of Jobs there are many others
_WAITED = (PodState.GATED, PodState.KEPT)
_LET_GO = (PodState.LIFTED, PodState.BOUND)
_TIME = "%Y-%m-%dT%H:%M:%SZ"

log = logging.getLogger(__name__)


class QueueTerm(Term):
    """Made anew for each term. The lists begin after the leadership has begun, which safety rests on."""

    def __init__(self, context: QueueContext, watch_metrics: WatchMetrics, watch_limits: WatchLimits) -> None:
        super().__init__(context.api, watch_metrics, watch_limits, context.leading)
        self._context = context = replace(context, leading=self.leading)
        self._wake = threading.Event()
        self._pods: Cache[QueuedPod] = Cache(self._pod_changed)
        self._nodes: Cache[NodeUnits] = Cache(lambda old, new: self._wake.set())
        self.watch(WatchedResource("pods", PODS, queued_pod, UNFINISHED), self._pods)
        self.watch(WatchedResource("nodes", NODES, node_units), self._nodes)
        self._teller = Teller(context, self._pods)
        self._idle = IdlePods(context, self._pods)

    def start(self) -> None:
        """Watch, and work once all pods and nodes are known; returns at once."""
        super().start()
        self.begin("queue", self._lead)
        self.begin("teller", self._teller.work)
        self.begin("idle", self._idle.work)

    def wake_to_end(self) -> None:
        """See `Term`."""
        self._wake.set()
        self._teller.stop()
        self._idle.stop()

    def retry_now(self) -> None:
        """See `Term`."""
        super().retry_now()
        self._wake.set()

    def _lead(self) -> None:
        if not self.wait_synced(self._pods, self._nodes):
            return
        leader: QueueLeader | None = None
        while not self.stopping.is_set():
            self._wake.clear()
            began = time.thread_time()
            try:
                if leader is None:
                    caches = Caches(self._pods, self._nodes)
                    leader = QueueLeader(self._context, caches, self._teller, self._has_gates())
                next_s = leader.step()
            except NotLeading:
                next_s = RETRY_S  # its end is told by the election, which may also have renewed in time
            except Exception:  # nobody else would lift anything
                log.exception("the queue did not move")
                next_s = RETRY_S
            # Of its own work only: a server that is slow is not waited for once more.
            self.stopping.wait(max(BATCH_S, BATCH_SHARE * (time.thread_time() - began)))
            self._wake.wait(next_s)

    def _has_gates(self) -> bool:
        """Whether the cluster has gates; asked until it is answered, once a term."""
        while not self.stopping.is_set():
            try:
                version = server_version(self._context.api)
                break
            except ApiFailure as error:
                log.warning("the cluster's version is not known yet", extra={"error": str(error)})
                self.stopping.wait(RETRY_S)
        else:
            return False
        gates = knows_gates(version)
        shown = ".".join(map(str, version)) if version else "unknown"
        if not gates:
            log.warning(
                "not protected against overselling: this Kubernetes has no scheduling gates, pods are only "
                "counted",
                extra={"version": shown, "needed": "1.27"},
            )
        else:
            log.info("lifting gates", extra={"version": shown, "pods": len(self._pods)})
        return gates

    def _pod_changed(self, old: QueuedPod | None, new: QueuedPod | None) -> None:
        if new is not None and not new.units:
            self._idle.seen(new)
        asks = any(pod is not None and pod.units for pod in (old, new))
        if asks and _but_for_words(old) != _but_for_words(new):
            self._wake.set()
        if old is None or new is None or old.uid != new.uid:
            return
        if old.state in _WAITED and new.state in _LET_GO:
            self._context.metrics.wait.observe(self._age(new))

    def _age(self, pod: QueuedPod) -> float:
        try:
            created = datetime.strptime(pod.created, _TIME).replace(tzinfo=timezone.utc)
        except ValueError:
            return 0.0
        return max(0.0, self._context.now() - created.timestamp())


def _but_for_words(pod: QueuedPod | None) -> QueuedPod | None:
    """All of it that decides anything: with 5,000 waiting, ten a second are told something new."""
    return None if pod is None else replace(pod, resource_version="", told=None, conditions=0)
