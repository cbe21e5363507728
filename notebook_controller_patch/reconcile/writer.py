"""Carries out what was decided about a notebook: sends patches, Events and deletions to the API server."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from bitfusion_client.kubernetes.names import ANNOTATION_RETRY
from bitfusion_client.kubernetes.raw_objects import mappings
from bitfusion_cluster.api.client import Query, Timeout
from bitfusion_cluster.api.errors import (
    ApiFailure,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
)
from bitfusion_cluster.api.events import Said
from bitfusion_cluster.api.paths import (
    EVENTS,
    events_path,
    notebook_path,
    pod_path,
    statefulset_path,
)
from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from bitfusion_cluster.watching.cache import Key
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.decisions import (
    Action,
    DeletePod,
    PatchNotebook,
    PatchTemplate,
    RetryPod,
)
from notebook_controller_patch.reconcile.events import INJECTOR_BACK, event_body
from notebook_controller_patch.reconcile.metrics import CONFLICT, DONE, ERROR
from notebook_controller_patch.reconcile.records import PodRecord, StatefulSetRecord, pod_record

REQUESTS_PER_SECOND = 15.0  # of the reconciler; watches and the Lease not counted
# A write passes through admission: two webhooks that don't answer cost 5 s each.
TIMEOUT: Timeout = (3.0, 15.0)
MOST_EVENTS = 100  # of one StatefulSet; one that fails differently each time has a few
MOST_EVENTS_OF_ALL = 400
LARGEST_EVENTS = 1 << 20  # bytes
NOT_CREATED = "FailedCreate"  # the reason of a StatefulSet's Event about a pod that was refused
EVENT_TRIES = 3  # after which a forbidden Event is given up

# values of the label `action` of bitfusion_reconcile_actions_total, which dashboards use
ACTION_LABELS = {
    Said: "Tell",
    PatchNotebook: "PatchNotebook",
    PatchTemplate: "PatchTemplate",
    DeletePod: "DeletePod",
    RetryPod: "RetryPod",
}

log = logging.getLogger(__name__)


class Writer:
    """The requests of one term of leadership, rate-limited over all workers.

    Args:
        context: Of this replica.
        may_act: Whether this replica still leads; asked before every request.
    """

    def __init__(self, context: ReconcileContext, may_act: Callable[[], bool]) -> None:
        self._api = context.api
        self._reporter = context.candidate.identity
        self._actions = context.metrics.actions
        self._may_act = may_act
        self._limiter = RateLimiter(REQUESTS_PER_SECOND, REQUESTS_PER_SECOND)
        self._stopping = threading.Event()
        self._forbidden_events: Counter[Key] = Counter()

    def stop(self) -> None:
        """Make no further request; does not wait for the one under way."""
        self._stopping.set()

    def pause(self, seconds: float) -> None:
        """Hold back the requests of all workers: the server said 429."""
        self._limiter.pause(seconds)

    def read_pod(self, statefulset: StatefulSetRecord) -> PodRecord | None:
        """The notebook's pod, None if there is none. Raises ApiFailure, NotLeading."""
        self._wait_for_turn()
        path = pod_path(statefulset.namespace, statefulset.pod_name)
        try:
            return pod_record(self._api.get(path, timeout=TIMEOUT))
        except NotFound:
            return None

    def read_refusals(self, statefulset: StatefulSetRecord) -> list[Mapping[str, Any]]:
        """The Events about pods that it could not make. Raises ApiFailure, NotLeading."""
        about = {"kind": "StatefulSet", "name": statefulset.name}
        return self._events(events_path(statefulset.namespace), about, NOT_CREATED, MOST_EVENTS)

    def read_all_refusals(self) -> list[Mapping[str, Any]]:
        """The same of all namespaces. Raises ApiFailure, NotLeading."""
        return self._events(EVENTS, {"kind": "StatefulSet"}, NOT_CREATED, MOST_EVENTS_OF_ALL)

    def read_all_returns(self) -> list[Mapping[str, Any]]:
        """Our Events that tell notebooks of the injector's return. Raises ApiFailure, NotLeading."""
        return self._events(EVENTS, {"kind": "Notebook"}, INJECTOR_BACK, MOST_EVENTS_OF_ALL)

    def _events(self, path: str, about: Mapping[str, str], reason: str, most: int) -> list[Mapping[str, Any]]:
        self._wait_for_turn()
        fields = [*(f"involvedObject.{name}={value}" for name, value in about.items()), f"reason={reason}"]
        query: Query = {"fieldSelector": ",".join(fields), "limit": most}
        found = self._api.get(path, query, TIMEOUT, LARGEST_EVENTS)
        return list(mappings(found.get("items")))

    def perform(self, action: Action, notebook: NotebookRecord) -> None:
        """Carry out one action and count it. Raises ApiFailure, NotLeading."""
        label = ACTION_LABELS[type(action)]
        self._wait_for_turn()
        try:
            if isinstance(action, Said):
                self._send(action, notebook)
            elif isinstance(action, DeletePod):
                self._delete(action, notebook)
            elif isinstance(action, RetryPod):
                self._touch(action, notebook)
            else:
                self._patch(action, notebook)
        except ApiFailure as error:
            self._actions.labels(label, CONFLICT if isinstance(error, Conflict) else ERROR).inc()
            raise
        self._actions.labels(label, DONE).inc()

    def _patch(self, action: PatchNotebook | PatchTemplate, notebook: NotebookRecord) -> None:
        if isinstance(action, PatchNotebook):
            path, message = notebook_path(*notebook.key), "notebook healed"
        else:
            path, message = statefulset_path(notebook.namespace, action.name), "template healed"
        self._api.patch(path, action.operations, timeout=TIMEOUT)
        log.info(message, extra={**_fields(notebook), "keys": _patched_keys(action)})

    def _touch(self, action: RetryPod, notebook: NotebookRecord) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        body = {"metadata": {"annotations": {ANNOTATION_RETRY: now}}}
        self._api.merge(statefulset_path(notebook.namespace, action.name), body, timeout=TIMEOUT)
        log.info("refused pod tried again", extra=_fields(notebook))

    def _delete(self, action: DeletePod, notebook: NotebookRecord) -> None:
        preconditions = {"uid": action.uid, "resourceVersion": action.resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            self._api.delete(pod_path(notebook.namespace, action.name), body, timeout=TIMEOUT)
        except NotFound:
            pass  # what was wanted
        log.info("pod that could never start deleted", extra={**_fields(notebook), "pod": action.name})

    def _send(self, event: Said, notebook: NotebookRecord) -> None:
        body = event_body(notebook, event, self._reporter)
        try:
            self._api.create(events_path(notebook.namespace), body, timeout=TIMEOUT)
        except (Forbidden, Invalid, NotFound) as error:
            # A namespace that is being deleted, or a role without Events: the rest must not wait for that
            # for ever. But an API server that has just started also forbids everything, for a second or so.
            self._forbidden_events[notebook.key] += 1
            if isinstance(error, Forbidden) and self._forbidden_events[notebook.key] <= EVENT_TRIES:
                raise
            log.warning("event refused", extra={"notebook": notebook.name, "error": str(error)})
        except Conflict:
            pass  # sent before
        self._forbidden_events.pop(notebook.key, None)

    def _wait_for_turn(self) -> None:
        if not self._limiter.wait(self._stopping) or not self._may_act():
            raise NotLeading


def _fields(notebook: NotebookRecord) -> dict[str, Any]:
    return {"namespace": notebook.namespace, "notebook": notebook.name}


def _patched_keys(action: PatchNotebook | PatchTemplate) -> list[str]:
    changed = (operation["path"] for operation in action.operations if operation["op"] != "test")
    return [path.rpartition("/")[2].replace("~1", "/").replace("~0", "~") for path in changed]
