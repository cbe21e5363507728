"""One term of leadership: watches of StatefulSets, namespaces and quotas, the work queue, the workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bitfusion_cluster.api.paths import NAMESPACES, RESOURCE_QUOTAS, STATEFULSETS
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.watched_resource import WatchedResource
from bitfusion_cluster.watching.work_queue import WorkQueue
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.quotas import QuotaRecord, quota_record
from notebook_controller_patch.reconcile.reconciler import Caches, Reconciler
from notebook_controller_patch.reconcile.records import (
    OptedOutNamespace,
    StatefulSetRecord,
    opted_out_namespace,
    statefulset_record,
)
from notebook_controller_patch.reconcile.writer import Writer

ADMITTED_S = 2.0  # the rest of a write that admission has answered: other webhooks, etcd
LOOK_AGAIN_S = 600.0  # everything, from the caches: without a request where nothing is wrong


class Term:
    """Made anew for each term, so that nothing is carried over from the one before.

    Args:
        context: Of this replica.
        notebooks: The replica's cache of Notebooks, which outlives the term.
        leading: Whether the Lease still holds; asked before every request.
    """

    def __init__(
        self, context: ReconcileContext, notebooks: Cache[NotebookRecord], leading: Callable[[], bool]
    ) -> None:
        self._metrics = context.metrics
        self._notebooks = notebooks
        self._queue = WorkQueue()
        self._stopping = threading.Event()
        self._statefulsets: Cache[StatefulSetRecord] = Cache(self._statefulset_changed)
        self._watch = context.list_watch(
            WatchedResource("statefulsets", STATEFULSETS, statefulset_record), self._statefulsets
        )
        self._opted_out: Cache[OptedOutNamespace] = Cache(self._namespace_changed)
        self._namespace_watch = context.list_watch(
            WatchedResource("namespaces", NAMESPACES, opted_out_namespace), self._opted_out
        )
        self._quotas: Cache[QuotaRecord] = Cache(self._quota_changed)
        self._quota_watch = context.list_watch(
            WatchedResource("resourcequotas", RESOURCE_QUOTAS, quota_record), self._quotas
        )
        writer = Writer(context, lambda: leading() and not self._stopping.is_set())
        self._reconciler = Reconciler(
            context, Caches(notebooks, self._statefulsets, self._opted_out, self._quotas), self._queue, writer
        )
        self._workers = [
            threading.Thread(target=self._reconciler.work, name=f"reconcile-{number}", daemon=True)
            for number in range(context.workers)
        ]
        self._starter = threading.Thread(target=self._queue_everything, name="reconcile-all", daemon=True)

    def start(self) -> None:
        """Watch, and reconcile once all StatefulSets and namespaces are known; returns at once."""
        # Read when it is asked for: of two threads that tell it, the one with the older number may be last.
        self._metrics.queued.set_function(self._queue.depth)
        self._watch.start()
        self._namespace_watch.start()
        self._quota_watch.start()
        self._starter.start()

    def stop(self) -> None:
        """Make no further request; does not wait for the one under way."""
        self._stopping.set()
        self._reconciler.stop()
        self._watch.stop()
        self._namespace_watch.stop()
        self._quota_watch.stop()

    def retry_now(self) -> None:
        """The API server answers again."""
        self._watch.retry_now()
        self._namespace_watch.retry_now()
        self._quota_watch.retry_now()

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads, after `stop`."""
        deadline = time.monotonic() + seconds
        for thread in (self._starter, *self._workers):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        for watch in (self._watch, self._namespace_watch, self._quota_watch):
            watch.join(max(0.0, deadline - time.monotonic()))

    def wake(self, key: Key) -> None:
        """Look at this notebook: something about it has changed."""
        self._queue.add(key)

    def look_again(self, key: Key) -> None:
        """Look at this notebook once the write that admission answers just now is stored."""
        self._queue.add(key, ADMITTED_S)

    def _queue_everything(self) -> None:
        # Before all are filled it would look as if StatefulSets were missing, and nobody had opted out.
        for synced in (self._notebooks, self._statefulsets, self._opted_out):
            while not synced.wait_synced(0.2):
                if self._stopping.is_set():
                    return
        self._reconciler.learn()
        for worker in self._workers:
            worker.start()
        while not self._stopping.is_set():
            for key in self._notebooks.known_keys():
                self._queue.add(key)
            self._stopping.wait(LOOK_AGAIN_S)

    def _statefulset_changed(self, old: StatefulSetRecord | None, new: StatefulSetRecord | None) -> None:
        record = new or old
        if record is not None:
            self.wake((record.namespace, record.owner_name))

    def _quota_changed(self, old: QuotaRecord | None, new: QuotaRecord | None) -> None:
        self._reconciler.quota_changed(old, new)

    def _namespace_changed(self, old: OptedOutNamespace | None, new: OptedOutNamespace | None) -> None:
        record = new or old
        if record is not None and self._opted_out.synced():
            for key in self._notebooks.known_keys():
                if key[0] == record.name:
                    self.wake(key)
