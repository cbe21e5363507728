"""One term of leadership: watches of StatefulSets, namespaces and quotas, the work queue, the workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bitfusion_cluster.api.paths import NAMESPACES, RESOURCE_QUOTAS, STATEFULSETS
from bitfusion_cluster.leading.quota_teller import QuotaTeller
from bitfusion_cluster.leading.term import Term
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.watched_resource import WatchedResource
from bitfusion_cluster.watching.work_queue import WorkQueue
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.events import COMPONENT
from notebook_controller_patch.reconcile.quota_waits import QuotaRecord, quota_record
from notebook_controller_patch.reconcile.reconciler import Caches, Reconciler
from notebook_controller_patch.reconcile.records import (
    OptedOutNamespace,
    StatefulSetRecord,
    opted_out_namespace,
    statefulset_record,
)
from notebook_controller_patch.reconcile.statefulset_cache import StatefulSetCache
from notebook_controller_patch.reconcile.writer import Writer

ADMITTED_S = 2.0  # the rest of a write that admission has answered: other webhooks, etcd
LOOK_AGAIN_S = 600.0  # everything, from the caches: without a request where nothing is wrong


class ReconcileTerm(Term):
    """Its work queue, and the workers that reconcile."""

    def __init__(
        self, context: ReconcileContext, notebooks: Cache[NotebookRecord], leads: Callable[[], bool]
    ) -> None:
        """`notebooks` is the replica's, and outlives the term; `leads` whether the Lease still holds."""
        super().__init__(context.api, context.watch_metrics, context.watch_limits, leads)
        self._context = context
        self._notebooks = notebooks
        self._queue = WorkQueue()
        self._statefulsets = StatefulSetCache(self._statefulset_changed)
        self._opted_out: Cache[OptedOutNamespace] = Cache(self._namespace_changed)
        self._quotas: Cache[QuotaRecord] = Cache(self._quota_changed)
        self.watch(WatchedResource("statefulsets", STATEFULSETS, statefulset_record), self._statefulsets)
        self.watch(WatchedResource("namespaces", NAMESPACES, opted_out_namespace), self._opted_out)
        record = partial(quota_record, gpu_keys=context.quota_keys)
        self.watch(WatchedResource("resourcequotas", RESOURCE_QUOTAS, record), self._quotas)
        reporter = (COMPONENT, context.candidate.identity)
        self._quota_teller = QuotaTeller(
            context.api, reporter, self._quotas, self.leading, context.quota_keys
        )
        caches = Caches(notebooks, self._statefulsets, self._opted_out, self._quotas)
        self._reconciler = Reconciler(context, caches, self._queue, Writer(context, self.leading))

    def start(self) -> None:
        """Watch, and reconcile once all StatefulSets and namespaces are known; returns at once."""
        # Read when it is asked for: of two threads that tell it, the one with the older number may be last.
        self._context.metrics.queued.set_function(self._queue.depth)
        super().start()
        self.begin("reconcile-all", self._queue_everything)
        if self._context.quota_keys:
            self.begin("quotas", self._quota_teller.work)

    def wake_to_end(self) -> None:
        """See `Term`."""
        self._reconciler.stop()
        self._quota_teller.stop()

    def wake(self, key: Key) -> None:
        """Look at this notebook: something about it has changed."""
        self._queue.add(key)

    def look_again(self, key: Key) -> None:
        """Look at this notebook once the write that admission answers just now is stored."""
        self._queue.add(key, ADMITTED_S)

    def _queue_everything(self) -> None:
        # Before all are filled it would look as if StatefulSets were missing, and nobody had opted out.
        if not self.wait_synced(self._notebooks, self._statefulsets, self._opted_out):
            return
        self._reconciler.learn()
        for number in range(self._context.workers):
            self.begin(f"reconcile-{number}", self._reconciler.work)
        while not self.stopping.is_set():
            for key in self._notebooks.known_keys():
                self._queue.add(key)
            self.stopping.wait(LOOK_AGAIN_S)

    def _statefulset_changed(self, old: StatefulSetRecord | None, new: StatefulSetRecord | None) -> None:
        record = new or old
        if record is not None:
            self.wake(record.owner_key)

    def _quota_changed(self, old: QuotaRecord | None, new: QuotaRecord | None) -> None:
        self._reconciler.quota_changed(old, new)
        self._quota_teller.changed(old, new)

    def _namespace_changed(self, old: OptedOutNamespace | None, new: OptedOutNamespace | None) -> None:
        record = new or old
        if record is not None and self._opted_out.synced():
            for key in self._notebooks.known_keys():
                if key[0] == record.name:
                    self.wake(key)
