"""The reconciler of one replica: the Notebook watch, the election, and a term whenever this replica leads."""

from __future__ import annotations

import threading
import time

from bitfusion_cluster.api.paths import NOTEBOOKS
from bitfusion_cluster.leading.election import Election, LeaderCallbacks
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.watched_resource import WatchedResource
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.term import Term


class ReconcileService:
    """Made and started by the controller, on every replica; only the holder of the Lease reconciles.

    Attributes:
        notebooks: All Notebooks. Filled on every replica: the look-ups of admission read it, and
            `notebooks.synced()` is a condition of being ready.
    """

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._term: Term | None = None
        self._started = False
        self.notebooks: Cache[NotebookRecord] = Cache(self._notebook_changed)
        self._watch = context.list_watch(
            WatchedResource("notebooks", NOTEBOOKS, notebook_record), self.notebooks
        )
        callbacks = LeaderCallbacks(self._start_term, self._end_term, self._retry_watches)
        self._election = Election(context.api, context.candidate, callbacks)

    @property
    def leading(self) -> bool:
        """Whether this replica may write just now."""
        return self._election.leading

    def start(self) -> None:
        """Begin to watch and to stand for election; returns at once."""
        self._started = True
        self._watch.start()
        self._election.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Finish the request under way, give the Lease back, end the watches; within about `seconds`."""
        deadline = time.monotonic() + seconds
        self._watch.stop()
        term = self._term
        if term is not None:
            term.stop()
            term.join(max(0.1, deadline - time.monotonic() - 1))
        if self._started:
            self._election.stop(max(0.1, deadline - time.monotonic()))
            self._watch.join(max(0.1, deadline - time.monotonic()))

    def look_again(self, namespace: str, name: str) -> None:
        """Look at a notebook soon: admission had to decide without knowing it as it is now.

        Where another replica leads, it looks by itself, when its watch brings the StatefulSet just written.
        """
        term = self._term
        if term is not None:
            term.look_again((namespace, name))

    def _start_term(self) -> None:
        self._context.metrics.leader.set(1)
        term = Term(self._context, self.notebooks, lambda: self.leading)
        with self._lock:
            self._term = term
        term.start()

    def _end_term(self) -> None:
        metrics = self._context.metrics
        metrics.leader.set(0)
        metrics.queued.set_function(lambda: 0)
        metrics.pending.set(0)
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.stop()

    def _retry_watches(self) -> None:
        # the Lease is asked for each second, the watches wait up to 30 s
        self._watch.retry_now()
        term = self._term
        if term is not None:
            term.retry_now()

    def _notebook_changed(self, old: NotebookRecord | None, new: NotebookRecord | None) -> None:
        record = new or old
        term = self._term
        if term is not None and record is not None:
            term.wake(record.key)
