"""Decides what the reconciler does about one notebook: heal, announce a pending change, remake a pod. Pure.

No clock, no network, no memory. The same state always gives the same actions, and the state after them gives
none: it does not matter which event led here, or how many were missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.carried_annotations import carried_annotations
from bitfusion_client.kubernetes.client_images import ImageRule
from bitfusion_client.kubernetes.names import (
    ADMISSION_IGNORE,
    ANNOTATION_MANAGEMENT,
    ANNOTATION_PENDING,
    ANNOTATION_RUNNING,
    LABEL_ADMISSION,
)
from bitfusion_client.kubernetes.notebook_changes import (
    NotebookChanges,
    default_annotations,
    notebook_changes,
)
from bitfusion_client.kubernetes.notebook_request import notebook_image
from bitfusion_cluster.api.events import Said
from bitfusion_cluster.api.json_patch import Operation, map_patch, pointer
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord
from notebook_controller_patch.propagation import template_annotations
from notebook_controller_patch.reconcile.events import (
    change_applied,
    change_pending,
    change_withdrawn,
    pod_remade,
)
from notebook_controller_patch.reconcile.pending import (
    PendingChange,
    describe,
    noted_change,
    pending_change,
    size_text,
)
from notebook_controller_patch.reconcile.records import PodRecord, StatefulSetRecord

TEMPLATE_ANNOTATIONS = pointer("spec", "template", "metadata", "annotations")


@dataclass(frozen=True, slots=True)
class PatchNotebook:
    """A JSON patch of the Notebook; its first operation tests the resourceVersion."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class PatchTemplate:
    """A JSON patch of the StatefulSet's template annotations.

    Its first operation tests that there are no replicas, or, where no pod has started, the resourceVersion.
    """

    name: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly this pod in exactly this state: bound to a node meanwhile, it is another one."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class RetryPod:
    """Touch an annotation of the StatefulSet, so that it tries at once to make a pod that was refused.

    Kubeflow's controller takes the annotation away again; that makes the StatefulSet try once more.
    """

    name: str


Action = Said | PatchNotebook | PatchTemplate | DeletePod | RetryPod


@dataclass(frozen=True, slots=True)
class Assessment:
    """One notebook, read once; made by `assess` for `decide`.

    Attributes:
        statefulset: The notebook's own; None if there is none, or if it is being deleted.
        changes: What the Notebook asks for, and what is missing on it.
        template: The annotations that the StatefulSet's template should have; empty without one.
        defaults: What an injector takes for annotations that a pod lacks; empty if none asks.
    """

    notebook: NotebookRecord
    statefulset: StatefulSetRecord | None
    changes: NotebookChanges
    template: Mapping[str, str]
    defaults: Mapping[str, str]

    @property
    def needs_pod(self) -> bool:
        """Whether the pod has to be read to decide: something is not as it should be."""
        statefulset = self.statefulset
        if statefulset is None or statefulset.replicas < 1:
            return False
        if self.template != statefulset.annotations:
            return True
        return not statefulset.ready and statefulset.revising and self.changes.request is not None

    @property
    def lacks_pod(self) -> bool:
        """Whether there should be a pod that asks for GPUs, and there is none: perhaps it was refused."""
        statefulset = self.statefulset
        if statefulset is None or statefulset.replicas < 1 or statefulset.has_pods:
            return False
        return self.changes.request is not None


def assess(
    notebook: NotebookRecord, statefulset: StatefulSetRecord | None, rules: Sequence[ImageRule]
) -> Assessment | None:
    """Read what the caches hold of a notebook; None for one that is to be left alone.

    Raises InvalidRequest: a size that cannot be, which slipped in while admission was away.
    """
    if notebook.deleting or notebook.labels.get(LABEL_ADMISSION) == ADMISSION_IGNORE:
        return None
    raw = notebook.to_object()
    changes = notebook_changes(raw, rules)
    # of a Notebook that was deleted and made again, the old StatefulSet has another owner
    if statefulset is None or statefulset.deleting or statefulset.owner_uid != notebook.uid:
        return Assessment(notebook, None, changes, {}, {})
    wanted = template_annotations(statefulset.annotations, _healed_annotations(notebook, changes))
    defaults = default_annotations(notebook_image(raw), rules) if changes.request is not None else {}
    return Assessment(notebook, statefulset, changes, wanted, defaults)


def decide(assessment: Assessment, pod: PodRecord | None) -> list[Action]:
    """The actions, in the order they are to be done; the first that fails ends them.

    `pod` is only looked at where `needs_pod` says so; None then means that there is none.
    Events come first: one that is sent twice is the same Event, but an annotation that is already there
    gives no reason to send one.
    """
    notebook, statefulset, changes = assessment.notebook, assessment.statefulset, assessment.changes
    pending = noted = noted_change(notebook.annotations)
    events: list[Action] = []
    healing: list[Action] = []
    if statefulset is not None:
        healing = _heal_template(assessment, statefulset, pod)
        # a change that is written to the template now is reported once the template has it
        if not any(isinstance(action, PatchTemplate) for action in healing):
            pending = None
            if not healing and statefulset.replicas >= 1:
                current = _running_annotations(assessment, statefulset, pod)
                pending = pending_change(
                    changes.request, assessment.template, current, statefulset.containers
                )
            events = _events_of_change(noted, pending, changes)
    operations = _notebook_operations(notebook, changes, pending)
    patches: list[Action] = [PatchNotebook(operations)] if operations else []
    return [*events, *patches, *healing]


def _healed_annotations(notebook: NotebookRecord, changes: NotebookChanges) -> dict[str, str]:
    kept = {
        name: value for name, value in notebook.annotations.items() if name not in changes.removed_annotations
    }
    return {**kept, **changes.annotations}


def _running_annotations(
    assessment: Assessment, statefulset: StatefulSetRecord, pod: PodRecord | None
) -> Mapping[str, Any]:
    """What runs: the template's annotations, unless an injector has put others into the pod.

    One that started while admission was away has its Notebook's, whatever the template says.
    """
    if pod is None or statefulset.uid not in pod.owner_uids or not pod.injected:
        return statefulset.annotations
    return {**assessment.defaults, **statefulset.annotations, **carried_annotations(pod.annotations)}


def _heal_template(
    assessment: Assessment, statefulset: StatefulSetRecord, pod: PodRecord | None
) -> list[Action]:
    wanted = assessment.template
    if statefulset.replicas < 1:
        stopped = {"op": "test", "path": "/spec/replicas", "value": 0}
        return _template_patch(statefulset, wanted, stopped)
    if statefulset.ready or not assessment.needs_pod:
        return []
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": statefulset.resource_version}
    if pod is None:
        # One that ran until now may be made again this very moment: it would be restarted for the change once
        # it is ready. Only from a template that asks for a size and lacks the annotation none can have run.
        if ANNOTATION_MANAGEMENT in statefulset.annotations or not statefulset.containers:
            return []
        return _template_patch(statefulset, wanted, unchanged)
    if statefulset.uid not in pod.owner_uids or not (pod.waiting and pod.asks):
        return []
    carried = carried_annotations(wanted)
    if all(pod.annotations.get(name) == value for name, value in carried.items()):
        return []
    # Only the injector can translate its size, so no node can ever take it; and a changed template alone
    # does not replace a pod that is not ready (OrderedReady).
    return [
        pod_remade(),
        *_template_patch(statefulset, wanted, unchanged),
        DeletePod(pod.name, pod.uid, pod.resource_version),
    ]


def _template_patch(
    statefulset: StatefulSetRecord, wanted: Mapping[str, str], test: Operation
) -> list[Action]:
    current = statefulset.annotations if statefulset.has_annotations else None
    removed = [name for name in statefulset.annotations if name not in wanted]
    operations = map_patch(TEMPLATE_ANNOTATIONS, current, wanted, removed)
    return [PatchTemplate(statefulset.name, (test, *operations))] if operations else []


def _events_of_change(
    noted: PendingChange | None,
    pending: PendingChange | None,
    changes: NotebookChanges,
) -> list[Action]:
    if pending is not None:
        return [] if noted is not None and noted.text == pending.text else [change_pending(pending.text)]
    if noted is None:
        return []
    size = describe(changes.request)
    if noted.running_size == size_text(changes.request):
        return [change_withdrawn(size)]
    return [change_applied(size)]


def _notebook_operations(
    notebook: NotebookRecord, changes: NotebookChanges, pending: PendingChange | None
) -> tuple[Operation, ...]:
    written = {**changes.annotations, **(pending.annotations() if pending is not None else {})}
    outdated = [name for name in (ANNOTATION_PENDING, ANNOTATION_RUNNING) if name not in written]
    annotations = notebook.annotations if notebook.has_annotations else None
    labels = notebook.labels if notebook.has_labels else None
    operations = [
        *map_patch("/metadata/annotations", annotations, written, [*changes.removed_annotations, *outdated]),
        *map_patch("/metadata/labels", labels, changes.labels, changes.removed_labels),
    ]
    if not operations:
        return ()
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": notebook.resource_version}
    return (test, *operations)
