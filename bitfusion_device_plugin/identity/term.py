"""One term of leadership: watches of namespaces and quotas, a queue and its threads, who tells of quotas."""

from __future__ import annotations

from functools import partial

from bitfusion_cluster.api.paths import NAMESPACES, RESOURCE_QUOTAS
from bitfusion_cluster.leading.quota_teller import QuotaTeller
from bitfusion_cluster.leading.term import Term
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.watched_resource import WatchedResource, WatchLimits
from bitfusion_cluster.watching.work_queue import WorkQueue
from bitfusion_device_plugin.identity.keeper import EVERYTHING, Keeper, KeeperContext
from bitfusion_device_plugin.identity.quotas import NamespaceQuotas, quota_record
from bitfusion_device_plugin.identity.records import DEFAULT_NAME, NamespaceRecord, namespace_record

WORKERS = 3  # each has a bitfusion-pool running, of some 25 MB
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0  # a Role that is applied, or a pool that is back, tells us nothing


class IdentityTerm(Term):
    """Its work queue, and the threads that work it off."""

    def __init__(
        self, context: KeeperContext, watch_metrics: WatchMetrics, watch_limits: WatchLimits
    ) -> None:
        super().__init__(context.api, watch_metrics, watch_limits, context.leading)
        self._queue = WorkQueue(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._namespaces: Cache[NamespaceRecord] = Cache(self._changed)
        self._quotas = NamespaceQuotas(
            self._quota_changed, lambda old, new: self._quota_teller.changed(old, new)
        )
        trim = partial(namespace_record, profiles=context.profiles)
        self.watch(WatchedResource("namespaces", NAMESPACES, trim), self._namespaces)
        self.watch(WatchedResource("resourcequotas", RESOURCE_QUOTAS, quota_record), self._quotas.cache)
        # Its leadership is the replica's: a token that was issued when the term ends is still written.
        self._keeper = Keeper(context, self._namespaces, self._quotas, self._queue)
        reporter = (DEFAULT_NAME, context.replica)
        self._quota_teller = QuotaTeller(context.api, reporter, self._quotas.cache, self.leading)

    def start(self) -> None:
        """Watch, and work once all namespaces and quotas are known; returns at once."""
        super().start()
        self.begin("identities", self._work)
        for number in range(1, WORKERS):
            self.begin(f"identities-{number}", self._help)
        self.begin("quotas", self._quota_teller.work)

    def wake_to_end(self) -> None:
        """See `Term`."""
        self._queue.close()
        self._quota_teller.stop()

    def look_at_everything(self) -> None:
        """The pool's files have changed."""
        self._queue.add(EVERYTHING)

    def _work(self) -> None:
        # Before all are known, tokens would look as if nobody had them, and namespaces as if without a limit.
        if self.wait_synced(self._namespaces, self._quotas.cache):
            self._queue.add(EVERYTHING)
            self._keeper.work()

    def _help(self) -> None:
        if self.wait_synced(self._namespaces, self._quotas.cache):
            self._keeper.work()

    def _quota_changed(self, namespace: str) -> None:
        if self._namespaces.get("", namespace) is not None:
            self._queue.add(("", namespace))

    def _changed(self, old: NamespaceRecord | None, new: NamespaceRecord | None) -> None:
        record = new or old
        if record is not None:
            self._queue.add(record.key)
