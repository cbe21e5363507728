"""Puts the reconciler together: watches, election, and one leadership term after the other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from bitfusion_client.client_images import ImageRule
from notebook_controller_patch.kubernetes_api import KubernetesApi
from notebook_controller_patch.metrics import ReconcileMetrics, WatchMetrics
from notebook_controller_patch.reconcile.backoff import Pace
from notebook_controller_patch.reconcile.cache import Cache
from notebook_controller_patch.reconcile.election import Election, LeaseTimes
from notebook_controller_patch.reconcile.list_watch import Limits, ListWatch
from notebook_controller_patch.reconcile.reconciler import Reconciler
from notebook_controller_patch.reconcile.records import (
    NotebookRecord,
    StatefulSetRecord,
    notebook_record,
    statefulset_record,
)
from notebook_controller_patch.reconcile.work_queue import WorkQueue

NOTEBOOKS = "/apis/kubeflow.org/v1/notebooks"
STATEFULSETS = "/apis/apps/v1/statefulsets"

WORKERS = 2
REQUESTS_PER_SECOND = 15.0  # of the reconciler; watches and the lease not counted
LOOK_AGAIN_S = 600.0  # everything, from the caches: without a request where nothing is wrong

log = logging.getLogger(__name__)

Rules = Callable[[], Sequence[ImageRule]]


class ReconcileService:
    """The reconciler of one replica. Made and started by the controller's main program.

    `notebooks` is filled on every replica: the admission's look-ups read it, and `notebooks.synced()` is part
    of being ready. Only the replica that holds the Lease `namespace`/`lease` as `identity` reconciles;
    `leading` says whether it is this one. `rules` is asked for the image map each time it is needed.
    `limits` and `times` are shorter in tests.
    """

    def __init__(
        self,
        api: KubernetesApi,
        *,
        namespace: str,
        lease: str,
        identity: str,
        rules: Rules,
        watch_metrics: WatchMetrics,
        metrics: ReconcileMetrics,
        limits: Limits | None = None,
        times: LeaseTimes | None = None,
        workers: int = WORKERS,
    ) -> None:
        self._api = api
        self._identity = identity
        self._rules = rules
        self._watch_metrics = watch_metrics
        self._metrics = metrics
        self._limits = limits
        self._workers = workers
        self._lock = threading.Lock()
        self._term: _Term | None = None
        self._started = False
        self.notebooks: Cache[NotebookRecord] = Cache(self._notebook_changed)
        self._watch = ListWatch(
            api, NOTEBOOKS, notebook_record, self.notebooks, "notebooks", watch_metrics, limits
        )
        self._election = Election(
            api, namespace, lease, identity, self._begin, self._end, times, back=self._back
        )

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

    def _begin(self) -> None:
        self._metrics.leader.set(1)
        term = _Term(self)
        with self._lock:
            self._term = term
        term.start()

    def _end(self) -> None:
        self._metrics.leader.set(0)
        self._metrics.queued.set(0)
        self._metrics.pending.set(0)
        with self._lock:
            term, self._term = self._term, None
        if term is not None:
            term.stop()

    def _back(self) -> None:
        # the Lease is asked for each second, the watches wait up to 30 s
        self._watch.hurry()
        term = self._term
        if term is not None:
            term.hurry()

    def _notebook_changed(self, old: NotebookRecord | None, new: NotebookRecord | None) -> None:
        record = new or old
        term = self._term
        if term is not None and record is not None:
            term.wake(record.key)


class _Term:
    """One time of leadership: its own queue, workers and StatefulSets, so that nothing is carried over."""

    def __init__(self, service: ReconcileService) -> None:
        self._notebooks = service.notebooks
        self._queue = WorkQueue()
        self._stopping = threading.Event()
        self._metrics = service._metrics
        self._statefulsets: Cache[StatefulSetRecord] = Cache(self._statefulset_changed)
        self._watch = ListWatch(
            service._api,
            STATEFULSETS,
            statefulset_record,
            self._statefulsets,
            "statefulsets",
            service._watch_metrics,
            service._limits,
        )
        self._reconciler = Reconciler(
            service._api,
            service.notebooks,
            self._statefulsets,
            self._queue,
            service._rules,
            lambda: service.leading and not self._stopping.is_set(),
            service._metrics,
            Pace(REQUESTS_PER_SECOND, REQUESTS_PER_SECOND),
            service._identity,
        )
        self._threads = [
            threading.Thread(target=self._reconciler.work, name=f"reconcile-{number}", daemon=True)
            for number in range(service._workers)
        ]
        self._look = threading.Thread(target=self._look_at_all, name="reconcile-all", daemon=True)

    def start(self) -> None:
        self._watch.start()
        self._look.start()

    def stop(self) -> None:
        """Make no further request; does not wait for the one under way."""
        self._stopping.set()
        self._reconciler.stop()
        self._watch.stop()

    def hurry(self) -> None:
        self._watch.hurry()

    def join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in (self._look, *self._threads):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._watch.join(max(0.0, deadline - time.monotonic()))

    def wake(self, key: tuple[str, str]) -> None:
        self._queue.add(key)
        self._metrics.queued.set(self._queue.depth())

    def _look_at_all(self) -> None:
        # half of the picture would look as if StatefulSets were missing
        for cache in (self._notebooks, self._statefulsets):
            while not cache.wait_synced(0.2):
                if self._stopping.is_set():
                    return
        for thread in self._threads:
            thread.start()
        while not self._stopping.is_set():
            for key in self._notebooks.known():
                self._queue.add(key)
            self._metrics.queued.set(self._queue.depth())
            self._stopping.wait(LOOK_AGAIN_S)

    def _statefulset_changed(self, old: StatefulSetRecord | None, new: StatefulSetRecord | None) -> None:
        record = new or old
        if record is not None:
            self.wake((record.namespace, record.owner_name))
