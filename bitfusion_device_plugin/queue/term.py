"""One term of leadership: the watches of pods and nodes, the thread that decides, the thread that tells."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone

from bitfusion_cluster.api.errors import ApiFailure
from bitfusion_cluster.api.paths import NODES, PODS
from bitfusion_cluster.api.server_version import knows_gates, server_version
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.list_watch import ListWatch
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits
from bitfusion_device_plugin.queue.context import NotLeading, QueueContext
from bitfusion_device_plugin.queue.leader import Caches, QueueLeader
from bitfusion_device_plugin.queue.pod_states import FINISHED_PHASES, PodState, QueuedPod, queued_pod
from bitfusion_device_plugin.queue.pool_units import NodeUnits, node_units
from bitfusion_device_plugin.queue.teller import Teller

BATCH_S = 0.05  # that changes are collected for, so that a thousand pods at once are a few steps …
BATCH_SHARE = 4  # … and so many times as long as the last step took: deciding takes a fifth of a core at most
RETRY_S = 1.0
PAGE = 200  # pods in one page of a list: they are larger than Notebooks
UNFINISHED = ",".join(f"status.phase!={phase}" for phase in FINISHED_PHASES)  # of Jobs there are many others
_WAITED = (PodState.GATED, PodState.KEPT)
_LET_GO = (PodState.LIFTED, PodState.BOUND)
_TIME = "%Y-%m-%dT%H:%M:%SZ"

log = logging.getLogger(__name__)


class Term:
    """Made anew for each term. The lists begin after the leadership has begun, which safety rests on."""

    def __init__(self, context: QueueContext, watch_metrics: WatchMetrics, limits: WatchLimits) -> None:
        leads = context.leading
        self._stopping = threading.Event()
        # Of the term, not of the replica: what hangs in a request while another one leads must send nothing
        # when this replica leads again, in its next term. (Where `leading` turns False and True again without
        # an end of the term, the Lease was renewed by its resourceVersion: nobody else has led.)
        context = replace(context, leading=lambda: not self._stopping.is_set() and leads())
        self._context = context
        self._wake = threading.Event()
        self._pods: Cache[QueuedPod] = Cache(self._pod_changed)
        self._nodes: Cache[NodeUnits] = Cache(lambda old, new: self._wake.set())
        pods = WatchedResource("pods", PODS, queued_pod, UNFINISHED)
        nodes = WatchedResource("nodes", NODES, node_units)
        self._watches = (
            ListWatch(context.api, pods, self._pods, watch_metrics, limits),
            ListWatch(context.api, nodes, self._nodes, watch_metrics, limits),
        )
        self._teller = Teller(context, self._pods)
        self._threads = (
            threading.Thread(target=self._lead, name="queue", daemon=True),
            threading.Thread(target=self._teller.work, name="teller", daemon=True),
        )

    def start(self) -> None:
        """Watch, and work once all pods and nodes are known; returns at once."""
        for watch in self._watches:
            watch.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more; does not wait."""
        self._stopping.set()
        self._wake.set()
        self._teller.stop()
        for watch in self._watches:
            watch.stop()

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads, after `stop`."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for watch in self._watches:
            watch.join(max(0.0, deadline - time.monotonic()))

    def retry_now(self) -> None:
        """The API server answers again."""
        for watch in self._watches:
            watch.retry_now()
        self._wake.set()

    def _lead(self) -> None:
        while not (self._pods.wait_synced(0.2) and self._nodes.wait_synced(0.2)):
            if self._stopping.is_set():
                return
        leader: QueueLeader | None = None
        while not self._stopping.is_set():
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
            self._stopping.wait(max(BATCH_S, BATCH_SHARE * (time.thread_time() - began)))
            self._wake.wait(next_s)

    def _has_gates(self) -> bool:
        """Whether the cluster has gates; asked until it is answered, once a term."""
        while not self._stopping.is_set():
            try:
                version = server_version(self._context.api)
                break
            except ApiFailure as error:
                log.warning("the cluster's version is not known yet", extra={"error": str(error)})
                self._stopping.wait(RETRY_S)
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
        if _but_for_words(old) != _but_for_words(new):
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
