"""The reconciler of one replica: the Notebook watch, the election, and a term whenever this replica leads."""

from __future__ import annotations

import time

from bitfusion_cluster.api.paths import NOTEBOOKS
from bitfusion_cluster.leading.term import Leadership, Terms
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.list_watch import ListWatch
from bitfusion_cluster.watching.watched_resource import WatchedResource
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.term import ReconcileTerm


class ReconcileService:
    """Made and started by the controller, on every replica; only the holder of the Lease reconciles.

    Attributes:
        notebooks: All Notebooks. Filled on every replica: the look-ups of admission read it, and
            `notebooks.synced()` is a condition of being ready.
    """

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self.notebooks: Cache[NotebookRecord] = Cache(self._notebook_changed)
        self._watch = ListWatch(
            context.api,
            WatchedResource("notebooks", NOTEBOOKS, notebook_record),
            self.notebooks,
            context.watch_metrics,
            context.watch_limits,
        )
        terms = Terms(
            self._new_term,
            context.metrics.leader,
            self._show_nothing,
            # the Lease is asked for each second, the watches wait up to 30 s
            server_is_back=self._watch.retry_now,
        )
        self._leadership = Leadership(context.api, context.candidate, terms)

    @property
    def leading(self) -> bool:
        """Whether this replica may write just now."""
        return self._leadership.leading

    def start(self) -> None:
        """Begin to watch and to stand for election; returns at once."""
        self._watch.start()
        self._leadership.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Finish the request under way, give the Lease back, end the watches; within about `seconds`."""
        deadline = time.monotonic() + seconds
        self._watch.stop()
        self._leadership.stop(seconds, to_give_back=1.0)
        self._watch.join(max(0.1, deadline - time.monotonic()))

    def look_again(self, namespace: str, name: str) -> None:
        """Look at a notebook soon: admission had to decide without knowing it as it is now.

        Where another replica leads, it looks by itself, when its watch brings the StatefulSet just written.
        """
        term = self._leadership.term
        if term is not None:
            term.look_again((namespace, name))

    def _new_term(self) -> ReconcileTerm:
        return ReconcileTerm(self._context, self.notebooks, lambda: self.leading)

    def _show_nothing(self) -> None:
        self._context.metrics.queued.set_function(lambda: 0)
        self._context.metrics.pending.set(0)

    def _notebook_changed(self, old: NotebookRecord | None, new: NotebookRecord | None) -> None:
        record = new or old
        term = self._leadership.term
        if term is not None and record is not None:
            term.wake(record.key)
