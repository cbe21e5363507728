"""What to do about one notebook, from what is known of it. Pure: no clock, no network, no memory.

The same state always gives the same actions, and the state after them gives none: it does not matter which
event woke us, or how many were missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.client_images import ImageRule
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes_names import (
    ADMISSION_IGNORE,
    ANNOTATION_MANAGEMENT,
    ANNOTATION_PENDING,
    LABEL_ADMISSION,
    carried_annotations,
)
from bitfusion_client.notebook_changes import NotebookChanges, notebook_changes
from bitfusion_client.refusals import refusal
from notebook_controller_patch.json_patch import Operation, map_patch, pointer
from notebook_controller_patch.propagation import pending_change, template_annotations
from notebook_controller_patch.reconcile.events import (
    Tell,
    change_applied,
    change_pending,
    change_withdrawn,
    pod_remade,
    request_refused,
)
from notebook_controller_patch.reconcile.records import NotebookRecord, PodRecord, StatefulSetRecord

TEMPLATE_ANNOTATIONS = pointer("spec", "template", "metadata", "annotations")
NO_GPU = "no GPU"


@dataclass(frozen=True, slots=True)
class PatchNotebook:
    """A JSON patch of the Notebook; its first operation tests the resourceVersion."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class PatchTemplate:
    """A JSON patch of the StatefulSet's template annotations.

    Its first operation tests that there are no replicas, or, where no pod has started, the resourceVersion.
    """

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly this pod in exactly this state: bound to a node meanwhile, it is another one."""

    name: str
    uid: str
    resource_version: str


Action = Tell | PatchNotebook | PatchTemplate | DeletePod


def pod_name(statefulset: StatefulSetRecord) -> str:
    """The only pod a notebook's StatefulSet has."""
    return f"{statefulset.name}-0"


def needs_pod(
    notebook: NotebookRecord, statefulset: StatefulSetRecord | None, rules: Sequence[ImageRule]
) -> bool:
    """Whether the pod has to be read before `decide`; only while none is ready and something is not right."""
    if _left_alone(notebook) or not _concerns(notebook, statefulset) or statefulset is None:
        return False
    if statefulset.replicas < 1 or statefulset.ready:
        return False
    try:
        changes = notebook_changes(notebook.to_object(), rules)
    except InvalidRequest:
        return False
    differs = _wanted(notebook, changes, statefulset) != statefulset.annotations
    return differs or (statefulset.revising and changes.request is not None)


def decide(
    notebook: NotebookRecord | None,
    statefulset: StatefulSetRecord | None,
    pod: PodRecord | None,
    rules: Sequence[ImageRule],
) -> list[Action]:
    """The actions, in the order they are to be done; the first that fails ends them.

    `pod` is only looked at where `needs_pod` says so; None then means that there is none.
    Events come first: said twice is the same Event, but an annotation once written is no reason to say it.
    """
    if notebook is None or _left_alone(notebook):
        return []
    try:
        changes = notebook_changes(notebook.to_object(), rules)
    except InvalidRequest as error:
        return [request_refused(refusal(error))]
    if not _concerns(notebook, statefulset):
        statefulset = None
    tells: list[Action] = []
    later: list[Action] = []
    waiting = notebook.annotations.get(ANNOTATION_PENDING)
    text: str | None = None
    if statefulset is not None:
        later = _heal_template(notebook, changes, statefulset, pod, rules)
        if not later and statefulset.replicas >= 1:
            annotations = _healed(notebook, changes)
            text = pending_change(notebook.to_object(annotations), statefulset.to_object())
        if text is not None and text != waiting:
            tells.append(change_pending(text))
        settled = not any(isinstance(action, PatchTemplate) for action in later)
        if waiting is not None and text is None and settled:
            tells.append(_told_settled(waiting, changes, statefulset))
        if not settled:
            text = waiting  # what is written now is told when the template has it
    else:
        text = waiting
    operations = _notebook_operations(notebook, changes, text)
    if operations:
        tells.append(PatchNotebook(operations))
    return tells + later


def _left_alone(notebook: NotebookRecord) -> bool:
    return notebook.deleting or notebook.labels.get(LABEL_ADMISSION) == ADMISSION_IGNORE


def _concerns(notebook: NotebookRecord, statefulset: StatefulSetRecord | None) -> bool:
    # of a Notebook that was deleted and made again, the old StatefulSet has another owner
    return statefulset is not None and not statefulset.deleting and statefulset.owner_uid == notebook.uid


def _healed(notebook: NotebookRecord, changes: NotebookChanges) -> dict[str, str]:
    kept = {
        name: value for name, value in notebook.annotations.items() if name not in changes.removed_annotations
    }
    return {**kept, **changes.annotations}


def _wanted(
    notebook: NotebookRecord, changes: NotebookChanges, statefulset: StatefulSetRecord
) -> dict[str, Any]:
    return template_annotations(statefulset.annotations, _healed(notebook, changes))


def _heal_template(
    notebook: NotebookRecord,
    changes: NotebookChanges,
    statefulset: StatefulSetRecord,
    pod: PodRecord | None,
    rules: Sequence[ImageRule],
) -> list[Action]:
    wanted = _wanted(notebook, changes, statefulset)
    if statefulset.replicas < 1:
        stopped = {"op": "test", "path": "/spec/replicas", "value": 0}
        return _template_patch(statefulset, wanted, stopped)
    if not needs_pod(notebook, statefulset, rules):
        return []
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": statefulset.resource_version}
    if pod is None:
        # A pod may be made this very moment, and one that ran until now would be restarted for the change
        # once it is ready. Only a template that no pod can start from is therefore not left as it is.
        if ANNOTATION_MANAGEMENT in statefulset.annotations:
            return []
        return _template_patch(statefulset, wanted, unchanged)
    if pod.owner_uid != statefulset.uid or not (pod.waiting and pod.asks):
        return []
    carried = carried_annotations(wanted)
    if all(pod.annotations.get(name) == value for name, value in carried.items()):
        return []
    # Its size is in words that only the injector understands, so no node can ever take it; and a changed
    # template alone does not replace a pod that is not ready (OrderedReady).
    return [
        pod_remade(),
        *_template_patch(statefulset, wanted, unchanged),
        DeletePod(pod.name, pod.uid, pod.resource_version),
    ]


def _template_patch(
    statefulset: StatefulSetRecord, wanted: Mapping[str, Any], test: Operation
) -> list[Action]:
    current = statefulset.annotations if statefulset.has_annotations else None
    removed = [name for name in statefulset.annotations if name not in wanted]
    operations = map_patch(TEMPLATE_ANNOTATIONS, current, wanted, removed)
    return [PatchTemplate((test, *operations))] if operations else []


def _notebook_operations(
    notebook: NotebookRecord, changes: NotebookChanges, pending: str | None
) -> tuple[Operation, ...]:
    written, removed = dict(changes.annotations), list(changes.removed_annotations)
    if pending is not None:
        written[ANNOTATION_PENDING] = pending
    else:
        removed.append(ANNOTATION_PENDING)
    annotations = notebook.annotations if notebook.has_annotations else None
    labels = notebook.labels if notebook.has_labels else None
    operations = [
        *map_patch("/metadata/annotations", annotations, written, removed),
        *map_patch("/metadata/labels", labels, changes.labels, changes.removed_labels),
    ]
    if not operations:
        return ()
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": notebook.resource_version}
    return (test, *operations)


def _told_settled(waiting: str, changes: NotebookChanges, statefulset: StatefulSetRecord) -> Tell:
    now = changes.request.describe() if changes.request else NO_GPU
    # the words of `pending_change`: "2 GPUs instead of 1 GPU, from the next start on"
    if f" instead of {now}, from" in waiting and not waiting.startswith(f"{now} instead"):
        return change_withdrawn(now)
    return change_applied(now, statefulset.replicas >= 1)
