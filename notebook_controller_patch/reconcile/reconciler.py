"""Looks at one notebook after the other and does what `decisions` says, through the Kubernetes API."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bitfusion_client.client_images import ImageRule
from bitfusion_client.kubernetes_names import ANNOTATION_PENDING
from notebook_controller_patch.kubernetes_api import (
    ApiFailure,
    Conflict,
    Forbidden,
    Invalid,
    KubernetesApi,
    NotFound,
    Timeout,
    TooManyRequests,
)
from notebook_controller_patch.metrics import ReconcileMetrics
from notebook_controller_patch.reconcile.backoff import Pace, Restraint
from notebook_controller_patch.reconcile.cache import Cache, Key
from notebook_controller_patch.reconcile.decisions import (
    Action,
    DeletePod,
    PatchNotebook,
    PatchTemplate,
    decide,
    needs_pod,
    pod_name,
)
from notebook_controller_patch.reconcile.events import WARNING, Tell, event_body
from notebook_controller_patch.reconcile.records import (
    NotebookRecord,
    PodRecord,
    StatefulSetRecord,
    pod_record,
)
from notebook_controller_patch.reconcile.work_queue import WorkQueue

log = logging.getLogger(__name__)

# A write passes through admission: two webhooks that don't answer cost 5 s each.
TIMEOUT: Timeout = (3.0, 15.0)
EVENT_TRIES = 3  # after which a forbidden Event is given up
DONE, CONFLICT, ERROR = "done", "conflict", "error"


class NotLeading(Exception):
    """The leadership, or the process, came to its end before a request was made."""


class Reconciler:
    """Works off the queue. `may_act` is asked before every request; `rules` gives the current image map.

    `reconcile` is all there is for one notebook; `work` is the loop of one worker thread.
    """

    def __init__(
        self,
        api: KubernetesApi,
        notebooks: Cache[NotebookRecord],
        statefulsets: Cache[StatefulSetRecord],
        queue: WorkQueue,
        rules: Callable[[], Sequence[ImageRule]],
        may_act: Callable[[], bool],
        metrics: ReconcileMetrics,
        pace: Pace,
        identity: str = "",
    ) -> None:
        self._api = api
        self._notebooks = notebooks
        self._statefulsets = statefulsets
        self._queue = queue
        self._rules = rules
        self._may_act = may_act
        self._metrics = metrics
        self._pace = pace
        self._identity = identity
        self._restraint = Restraint()
        self._stopping = threading.Event()
        self._pending: set[Key] = set()
        self._untold: Counter[Key] = Counter()  # how often an Event of that notebook was forbidden
        self._refused: dict[Key, str] = {}  # what was told; asked again it would be a 409 each time
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Make no further request."""
        self._stopping.set()
        self._queue.close()

    def work(self) -> None:
        """Until the queue is closed."""
        while True:
            key = self._queue.get()
            if key is None:
                return
            try:
                self._one(key)
            finally:
                self._queue.done(key)
                self._metrics.queued.set(self._queue.depth())

    def _one(self, key: Key) -> None:
        delay = self._restraint.delay(key)
        if delay > 0:
            log.warning(
                "something keeps undoing what is written",
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
            return
        except Conflict as error:
            # the cache was behind; the event that brings it up to date also wakes us, this is for its loss
            result = CONFLICT
            self._later(key, error, logging.DEBUG)
        except ApiFailure as error:
            result = ERROR
            self._later(key, error, logging.WARNING)
        except Exception as error:  # one notebook's bug must not end the worker
            result = ERROR
            log.exception("reconcile failed", extra={"namespace": key[0], "notebook": key[1]})
            self._later(key, error, logging.DEBUG)
        self._metrics.runs.labels(result).inc()
        self._metrics.seconds.observe(time.perf_counter() - began)

    def _later(self, key: Key, error: Exception, level: int) -> None:
        asked = getattr(error, "retry_after", None) or 0.0
        if isinstance(error, TooManyRequests):
            self._pace.pause(asked)  # all workers: the server is too busy, not this notebook
        delay = self._queue.retry(key, asked)
        log.log(
            level,
            "notebook is looked at again",
            extra={"namespace": key[0], "notebook": key[1], "wait_s": round(delay, 1), "error": str(error)},
        )

    def reconcile(self, key: Key) -> list[Action]:
        """Bring one notebook to its wanted state; what was done. Raises ApiFailure, NotLeading."""
        notebook = self._notebooks.get(*key)
        self._count_pending(key, notebook)
        if notebook is None:
            self._restraint.forget(key)
            self._refused.pop(key, None)
            return []
        statefulset = self._statefulsets.get(*key)
        rules = self._rules()
        pod = None
        if statefulset is not None and needs_pod(notebook, statefulset, rules):
            pod = self._pod(statefulset)
        actions = decide(notebook, statefulset, pod, rules)
        refused = next(
            (item.message for item in actions if isinstance(item, Tell) and item.kind == WARNING), ""
        )
        if refused and self._refused.get(key) == refused:
            return []
        for action in actions:
            self._do(action, notebook, statefulset)
        if refused:
            self._refused[key] = refused
        else:
            self._refused.pop(key, None)
        return actions

    def _do(self, action: Action, notebook: NotebookRecord, statefulset: StatefulSetRecord | None) -> None:
        name = type(action).__name__
        try:
            if isinstance(action, Tell):
                self._tell(action, notebook)
            else:
                self._write(action, notebook, statefulset)
        except ApiFailure as error:
            result = CONFLICT if isinstance(error, Conflict) else ERROR
            self._metrics.actions.labels(name, result).inc()
            raise
        self._metrics.actions.labels(name, DONE).inc()

    def _write(
        self,
        action: PatchNotebook | PatchTemplate | DeletePod,
        notebook: NotebookRecord,
        statefulset: StatefulSetRecord | None,
    ) -> None:
        fields: dict[str, Any] = {"namespace": notebook.namespace, "notebook": notebook.name}
        self._turn()
        if isinstance(action, PatchNotebook):
            path = f"/apis/kubeflow.org/v1/namespaces/{notebook.namespace}/notebooks/{notebook.name}"
            self._api.patch(path, list(action.operations), timeout=TIMEOUT)
            log.info("notebook healed", extra={**fields, "keys": _keys(action)})
        elif isinstance(action, PatchTemplate):
            name = statefulset.name if statefulset is not None else notebook.name
            path = f"/apis/apps/v1/namespaces/{notebook.namespace}/statefulsets/{name}"
            self._api.patch(path, list(action.operations), timeout=TIMEOUT)
            log.info("template healed", extra={**fields, "keys": _keys(action)})
        else:
            path = f"/api/v1/namespaces/{notebook.namespace}/pods/{action.name}"
            preconditions = {"uid": action.uid, "resourceVersion": action.resource_version}
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
            try:
                self._api.delete(path, body, timeout=TIMEOUT)
            except NotFound:
                pass  # what was wanted
            log.info("pod that could never start deleted", extra={**fields, "pod": action.name})
        self._restraint.note(notebook.key)

    def _tell(self, tell: Tell, notebook: NotebookRecord) -> None:
        self._turn()
        path = f"/api/v1/namespaces/{notebook.namespace}/events"
        try:
            self._api.create(path, event_body(notebook, tell, self._identity), timeout=TIMEOUT)
        except (Forbidden, Invalid, NotFound) as error:
            # A namespace that is being deleted, or a role without Events: the rest must not wait for that
            # for ever. But an apiserver that has just started also forbids everything, for a second or so.
            self._untold[notebook.key] += 1
            if isinstance(error, Forbidden) and self._untold[notebook.key] <= EVENT_TRIES:
                raise
            log.warning("event refused", extra={"notebook": notebook.name, "error": str(error)})
        except Conflict:
            pass  # told already
        self._untold.pop(notebook.key, None)

    def _pod(self, statefulset: StatefulSetRecord) -> PodRecord | None:
        self._turn()
        path = f"/api/v1/namespaces/{statefulset.namespace}/pods/{pod_name(statefulset)}"
        try:
            return pod_record(self._api.get(path, timeout=TIMEOUT))
        except NotFound:
            return None

    def _turn(self) -> None:
        if not self._pace.wait(self._stopping) or not self._may_act():
            raise NotLeading

    def _count_pending(self, key: Key, notebook: NotebookRecord | None) -> None:
        with self._lock:
            if notebook is not None and ANNOTATION_PENDING in notebook.annotations:
                self._pending.add(key)
            else:
                self._pending.discard(key)
            self._metrics.pending.set(len(self._pending))


def _keys(action: PatchNotebook | PatchTemplate) -> list[str]:
    changed = (operation["path"] for operation in action.operations if operation["op"] != "test")
    return [path.rpartition("/")[2].replace("~1", "/").replace("~0", "~") for path in changed]
