"""The reconciler: takes notebooks from the work queue, decides, has it carried out, and retries failures."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.names import ANNOTATION_PENDING
from bitfusion_client.kubernetes.refusals import refusal
from bitfusion_cluster.api.errors import ApiError, ApiFailure, Conflict, TooManyRequests
from bitfusion_cluster.api.events import Said
from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.work_queue import WorkQueue
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.decisions import Action, Assessment, RetryPod, assess, decide
from notebook_controller_patch.reconcile.events import (
    injector_away,
    injector_back,
    quota_exceeded,
    request_refused,
)
from notebook_controller_patch.reconcile.metrics import CONFLICT, DONE, ERROR
from notebook_controller_patch.reconcile.quota_refusals import QuotaRefusal, quota_refusal
from notebook_controller_patch.reconcile.quota_waits import QuotaRecord, QuotaWaits
from notebook_controller_patch.reconcile.records import OptedOutNamespace
from notebook_controller_patch.reconcile.refused_pods import RefusedPods, absences, injector_was_away
from notebook_controller_patch.reconcile.statefulset_cache import StatefulSetCache
from notebook_controller_patch.reconcile.write_throttler import WriteThrottler
from notebook_controller_patch.reconcile.writer import Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caches:
    """What the reconciler reads: Notebooks, their StatefulSets, namespaces that are left alone, quotas."""

    notebooks: Cache[NotebookRecord]
    statefulsets: StatefulSetCache
    opted_out: Cache[OptedOutNamespace]
    quotas: Cache[QuotaRecord]


class Reconciler:
    """Works off the queue during one term of leadership.

    `reconcile` is all there is for one notebook; `work` is the loop of one worker thread.
    """

    def __init__(
        self,
        context: ReconcileContext,
        caches: Caches,
        queue: WorkQueue,
        writer: Writer,
    ) -> None:
        self._rules = context.rules
        self._metrics = context.metrics
        self._notebooks = caches.notebooks
        self._statefulsets = caches.statefulsets
        self._opted_out = caches.opted_out
        self._queue = queue
        self._writer = writer
        self._throttler = WriteThrottler()
        self._told_wrong: dict[Key, Said] = {}  # sent before; sent again it would be a 409 each time
        self._refused_pods = RefusedPods(queue.add)
        self._quota_waits = QuotaWaits(caches.quotas, queue.add)
        self._pending: set[Key] = set()
        self._pending_lock = threading.Lock()

    def stop(self) -> None:
        """Make no further request; workers end after the one under way."""
        self._writer.stop()
        self._queue.close()

    def learn(self) -> None:
        """Learn whose pods were refused before this term; called once, when all caches are filled.

        Never raises: who is not known here is only told less.
        """
        try:
            refusals = self._writer.read_all_refusals()
            returns = self._writer.read_all_returns() if refusals else []
        except NotLeading:
            return
        except ApiFailure as error:
            log.warning("events of refused pods not read", extra={"error": str(error)})
            return
        found = absences(refusals, returns, datetime.now(timezone.utc), self._statefulsets.owner_of)
        self._refused_pods.learn({key: when for key, when in found.items() if self._notebooks.get(*key)})

    def quota_changed(self, old: QuotaRecord | None, new: QuotaRecord | None) -> None:
        """A quota has changed: notebooks that wait for it may start. Called by its watch."""
        self._quota_waits.changed(old, new)

    def work(self) -> None:
        """Reconcile until the queue is closed. The target of a worker thread."""
        self._queue.work_off(self._work_on)

    def reconcile(self, key: Key) -> list[Action]:
        """Bring one notebook to its wanted state; what was done. Raises ApiFailure, NotLeading."""
        notebook = self._notebooks.get(*key)
        self._count_pending(key, notebook)
        if notebook is None or self._opted_out.get("", notebook.namespace) is not None:
            self._throttler.forget(key)
            self._told_wrong.pop(key, None)
            self._forget_pod(key)
            return []
        try:
            own = self._statefulsets.of_notebook(*notebook.key, notebook.uid)
            assessment = assess(notebook, own, self._rules())
            actions = self._decide(assessment)
        except InvalidRequest as error:
            self._forget_pod(key)
            return self._refuse(notebook, request_refused(refusal(error)))
        self._told_wrong.pop(key, None)
        for action in actions:
            self._writer.perform(action, notebook)
            if not isinstance(action, Said):
                self._throttler.note(key)
        return [*actions, *self._look_after_pod(notebook, assessment)]

    def _decide(self, assessment: Assessment | None) -> list[Action]:
        if assessment is None:
            return []
        pod = None
        if assessment.statefulset is not None and assessment.needs_pod:
            pod = self._writer.read_pod(assessment.statefulset)
        return decide(assessment, pod)

    def _look_after_pod(self, notebook: NotebookRecord, assessment: Assessment | None) -> list[Action]:
        """Have a pod made again that was refused, without the injector or over the quota, and tell it."""
        key, pods = notebook.key, self._refused_pods
        if assessment is None or assessment.statefulset is None or assessment.statefulset.replicas < 1:
            self._forget_pod(key)
        elif not assessment.lacks_pod:
            return self._welcome_pod(notebook, assessment.statefulset.has_pods)
        elif pods.to_be_asked(key):
            refusals = self._writer.read_refusals(assessment.statefulset)
            retry = RetryPod(assessment.statefulset.name)
            if injector_was_away(refusals):
                self._quota_waits.forget(key)
                return self._try_again(notebook, retry)
            pods.for_another_reason(key)
            found = quota_refusal(refusals)
            if found is not None:
                return self._wait_for_quota(notebook, found, retry)
            self._quota_waits.forget(key)
        return []

    def _forget_pod(self, key: Key) -> None:
        self._refused_pods.forget(key)
        self._quota_waits.forget(key)

    def _wait_for_quota(
        self, notebook: NotebookRecord, refusal: QuotaRefusal, retry: RetryPod
    ) -> list[Action]:
        waits, key = self._quota_waits, notebook.key
        actions: list[Action] = []
        if waits.to_be_told(key, refusal):
            actions.append(quota_exceeded(notebook.namespace, refusal))
        if waits.refused(key, refusal):
            actions.append(retry)
        for action in actions:
            self._writer.perform(action, notebook)
            if isinstance(action, Said):
                waits.was_told(key, refusal)
        return actions

    def _welcome_pod(self, notebook: NotebookRecord, has_pod: bool) -> list[Action]:
        actions: list[Action] = []
        since = self._refused_pods.refused_since(notebook.key)
        if since is not None and has_pod:
            actions = [injector_back(since)]
            self._writer.perform(actions[0], notebook)  # if it fails the pod is still to be welcomed
        self._refused_pods.has_pod(notebook.key)
        self._quota_waits.forget(notebook.key)
        return actions

    def _try_again(self, notebook: NotebookRecord, retry: RetryPod) -> list[Action]:
        actions: list[Action] = [retry] if self._refused_pods.refused(notebook.key) else []
        since = self._refused_pods.refused_since(notebook.key)
        if since is not None:
            actions.insert(0, injector_away(since))
        for action in actions:
            self._writer.perform(action, notebook)
        return actions

    def _refuse(self, notebook: NotebookRecord, event: Said) -> list[Action]:
        if self._told_wrong.get(notebook.key) == event:
            return []
        self._writer.perform(event, notebook)
        self._told_wrong[notebook.key] = event
        return [event]

    def _work_on(self, key: Key) -> None:
        delay = self._throttler.delay(key)
        if delay > 0:
            log.warning(
                "another program keeps undoing what is written here",
                extra={"namespace": key[0], "notebook": key[1], "wait_s": round(delay)},
            )
            self._queue.add(key, delay)
            return
        began = time.perf_counter()
        result = DONE
        try:
            self.reconcile(key)
            self._queue.forget(key)
        except NotLeading:
            # If the Lease was only renewed late, this term goes on, and the notebook must not be forgotten.
            self._queue.retry(key)
            return
        except Conflict as error:
            # the cache was behind; the event that brings it up to date also queues the key, unless it is lost
            result = CONFLICT
            self._retry(key, error, logging.DEBUG)
        except ApiFailure as error:
            result = ERROR
            self._retry(key, error, logging.WARNING)
        except Exception as error:  # one notebook's bug must not end the worker
            result = ERROR
            log.exception("reconcile failed", extra={"namespace": key[0], "notebook": key[1]})
            self._retry(key, error, logging.DEBUG)
        self._metrics.runs.labels(result).inc()
        self._metrics.seconds.observe(time.perf_counter() - began)

    def _retry(self, key: Key, error: Exception, level: int) -> None:
        retry_after = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
        if isinstance(error, TooManyRequests):
            self._writer.pause(retry_after)  # all workers: the server is too busy, not this notebook
        delay = self._queue.retry(key, retry_after)
        log.log(
            level,
            "notebook will be examined again",
            extra={"namespace": key[0], "notebook": key[1], "wait_s": round(delay, 1), "error": str(error)},
        )

    def _count_pending(self, key: Key, notebook: NotebookRecord | None) -> None:
        with self._pending_lock:
            if notebook is not None and ANNOTATION_PENDING in notebook.annotations:
                self._pending.add(key)
            else:
                self._pending.discard(key)
            self._metrics.pending.set(len(self._pending))
