"""The reconciler of one replica: the Notebook watch, the election, and a term whenever this replica leads."""

from __future__ import annotations

import time

from bitfusion_cluster.api.paths import NOTEBOOKS
from bitfusion_cluster.leading.term import Leadership
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.list_watch import ListWatch
from bitfusion_cluster.watching.watched_resource import WatchedResource
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.term import ReconcileTerm


class ReconcileService(Leadership[ReconcileTerm]):
    """Made and started by the controller, on every replica; only the holder of the Lease reconciles.

    Attributes:
        notebooks: All Notebooks. Filled on every replica: the look-ups of admission read it, and
            `notebooks.synced()` is a condition of being ready.
    """

    def __init__(self, context: ReconcileContext) -> None:
        super().__init__(context.api, context.candidate)
        self._context = context
        self.leader = context.metrics.leader
        self.notebooks: Cache[NotebookRecord] = Cache(self._notebook_changed)
        self._watch = ListWatch(
            context.api,
            WatchedResource("notebooks", NOTEBOOKS, notebook_record),
            self.notebooks,
            context.watch_metrics,
            context.watch_limits,
        )

    def start(self) -> None:
        """Begin to watch and to stand for election; returns at once."""
        self._watch.start()
        super().start()

    def stop(self, seconds: float = 10.0, to_give_back: float = 1.0) -> None:
        """Finish the request under way, give the Lease back, end the watches; within about `seconds`."""
        deadline = time.monotonic() + seconds
        self._watch.stop()
        super().stop(seconds, to_give_back)
        self._watch.join(max(0.1, deadline - time.monotonic()))

    def look_again(self, namespace: str, name: str) -> None:
        """Look at a notebook soon: admission had to decide without knowing it as it is now.

        Where another replica leads, it looks by itself, when its watch brings the StatefulSet just written.
        """
        term = self.term
        if term is not None:
            term.look_again((namespace, name))

    def new_term(self) -> ReconcileTerm:
        """See `Leadership`."""
        return ReconcileTerm(self._context, self.notebooks, lambda: self.leading)

    def term_ended(self) -> None:
        """See `Leadership`."""
        self._context.metrics.queued.set_function(lambda: 0)
        self._context.metrics.pending.set(0)

    def server_is_back(self) -> None:
        """See `Leadership`. The Lease is asked for each second, the watches wait up to 30 s."""
        self._watch.retry_now()
        super().server_is_back()

    def _notebook_changed(self, old: NotebookRecord | None, new: NotebookRecord | None) -> None:
        record = new or old
        term = self.term
        if term is not None and record is not None:
            term.wake(record.key)
