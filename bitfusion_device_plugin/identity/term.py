"""One term of leadership: the watches of namespaces and quotas, the queue, the thread that works it off."""

from __future__ import annotations

import threading
import time

from bitfusion_cluster.api.paths import NAMESPACES, RESOURCE_QUOTAS
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.list_watch import ListWatch
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits
from bitfusion_cluster.watching.work_queue import WorkQueue
from bitfusion_device_plugin.identity.keeper import EVERYTHING, Keeper, KeeperContext
from bitfusion_device_plugin.identity.quotas import NamespaceQuotas, quota_record
from bitfusion_device_plugin.identity.records import NamespaceRecord, namespace_record

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0  # a Role that is applied, or a pool that is back, tells us nothing


class Term:
    """Made anew for each term, so that nothing is carried over from the one before."""

    def __init__(self, context: KeeperContext, watch_metrics: WatchMetrics, limits: WatchLimits) -> None:
        self._queue = WorkQueue(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._stopping = threading.Event()
        self._namespaces: Cache[NamespaceRecord] = Cache(self._changed)
        resource = WatchedResource("namespaces", NAMESPACES, namespace_record)
        self._watch = ListWatch(context.api, resource, self._namespaces, watch_metrics, limits)
        self._quotas = NamespaceQuotas(self._quota_changed)
        self._quota_watch = ListWatch(
            context.api,
            WatchedResource("resourcequotas", RESOURCE_QUOTAS, quota_record),
            self._quotas.cache,
            watch_metrics,
            limits,
        )
        self._keeper = Keeper(context, self._namespaces, self._quotas, self._queue)
        self._thread = threading.Thread(target=self._work, name="identities", daemon=True)

    def start(self) -> None:
        """Watch, and work once all namespaces and quotas are known; returns at once."""
        self._watch.start()
        self._quota_watch.start()
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more; does not wait."""
        self._stopping.set()
        self._queue.close()
        self._watch.stop()
        self._quota_watch.stop()

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads, after `stop`."""
        deadline = time.monotonic() + seconds
        self._thread.join(seconds)
        for watch in (self._watch, self._quota_watch):
            watch.join(max(0.0, deadline - time.monotonic()))

    def look_at_everything(self) -> None:
        """The pool's files have changed."""
        self._queue.add(EVERYTHING)

    def retry_now(self) -> None:
        """The API server answers again."""
        self._watch.retry_now()
        self._quota_watch.retry_now()

    def _work(self) -> None:
        # Before all are known, tokens would look as if nobody had them, and namespaces as if without a limit.
        for synced in (self._namespaces, self._quotas.cache):
            while not synced.wait_synced(0.2):
                if self._stopping.is_set():
                    return
        self._queue.add(EVERYTHING)
        self._keeper.work()

    def _quota_changed(self, namespace: str) -> None:
        if self._namespaces.get("", namespace) is not None:
            self._queue.add(("", namespace))

    def _changed(self, old: NamespaceRecord | None, new: NamespaceRecord | None) -> None:
        record = new or old
        if record is not None:
            self._queue.add(record.key)
