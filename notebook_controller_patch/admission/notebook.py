"""Admission of Notebooks: refuses impossible sizes; adds annotations and label to those that ask. Pure.

It warns only of what a person can do something about, since `kubectl --warnings-as-errors` fails on one:
which client an image led to stands in the annotations, and the reason in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.client_images import ImageRule
from bitfusion_client.kubernetes.names import ANNOTATION_REQUEST
from bitfusion_client.kubernetes.notebook_changes import (
    DEFAULTED,
    NotebookChanges,
    default_annotations,
    notebook_changes,
)
from bitfusion_client.kubernetes.notebook_request import has_size, notebook_image
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    is_being_deleted,
    metadata_of,
    pod_template_of,
)
from bitfusion_client.kubernetes.refusals import refusal
from bitfusion_client.kubernetes.rewritten_objects import same_meaning
from bitfusion_client.kubernetes.wrong_notebook import brought_by_edit
from bitfusion_cluster.api.json_patch import NotAMap, Operation, map_patch, maps_patch
from bitfusion_cluster.webhooks.review import UNPROCESSABLE, UNTOUCHED, Review, Verdict

ANNOTATION_STOPPED = "kubeflow-resource-stopped"  # Kubeflow's; its value is a time, only its presence counts

RESTARTS = (
    "this edit restarts the running notebook. A size changed in the annotation "
    f"{ANNOTATION_REQUEST} waits for the next start instead"
)
CHOSEN_ANEW = "Remove these annotations to have them chosen again"
LEFT_WRONG = "left unchanged, but no GPU can be assigned: "


def admit_notebook(review: Review, rules: Sequence[ImageRule]) -> Verdict:
    """The verdict on the creation or an edit of a Notebook.

    Refuses values that cannot be, where the request brings them. An edit of a Notebook that was wrong before
    and that leaves the wrong values alone passes with a warning: culling, stopping and finalizers must work
    on it, too.
    """
    notebook = review.object
    if notebook is None or review.kind != "Notebook" or review.sub_resource:
        return UNTOUCHED
    if review.operation not in ("CREATE", "UPDATE") or is_being_deleted(notebook):
        return UNTOUCHED
    old = review.old_object if review.operation == "UPDATE" else None
    try:
        changes = notebook_changes(notebook, rules)
    except InvalidRequest as error:
        reasons = [error] if old is None else brought_by_edit(old, notebook)
        if not reasons:
            return Verdict(warnings=(LEFT_WRONG + error.user_message,))
        return Verdict(False, message=refusal(reasons[0]), code=UNPROCESSABLE)
    warnings = tuple(_warnings_of_edit(old, notebook, changes, rules)) if old is not None else ()
    try:
        return Verdict(patch=notebook_patch(notebook, changes), warnings=warnings, notes=changes.notes)
    except NotAMap:
        return UNTOUCHED  # the API refuses it by itself


def notebook_patch(notebook: Mapping[str, Any], changes: NotebookChanges) -> list[Operation]:
    """The changes as a JSON patch of the Notebook, empty if there are none. Raises NotAMap."""
    if changes.is_empty():
        return []
    operations = maps_patch(notebook, "metadata")
    metadata = metadata_of(notebook)
    for part, written, removed in (
        ("annotations", changes.annotations, changes.removed_annotations),
        ("labels", changes.labels, changes.removed_labels),
    ):
        operations += map_patch(f"/metadata/{part}", metadata.get(part), written, removed)
    return operations


def restarts(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether an edit makes Kubeflow remake the pod of a running notebook that asks, or asked, for GPUs.

    Kubeflow's culler, which notes the last activity each minute and spells the spec anew, restarts nothing.
    """
    if ANNOTATION_STOPPED in annotations_of(old) or ANNOTATION_STOPPED in annotations_of(new):
        return False
    if not (has_size(old) or has_size(new) or ANNOTATION_REQUEST in annotations_of(new)):
        return False
    before, after = pod_template_of(old).get("spec"), pod_template_of(new).get("spec")
    return before is not None and not same_meaning(before, after)


def _warnings_of_edit(
    old: Mapping[str, Any], new: Mapping[str, Any], changes: NotebookChanges, rules: Sequence[ImageRule]
) -> list[str]:
    warnings = [RESTARTS] if restarts(old, new) else []
    former, present = notebook_image(old), notebook_image(new)
    if changes.request is None or former == present:
        return warnings
    before, after = default_annotations(former, rules), default_annotations(present, rules)
    stale = [
        name
        for name in DEFAULTED
        if before[name] != after[name] and annotations_of(new).get(name) == before[name]
    ]
    if stale:
        shown = ", ".join(f"{name}={before[name]}" for name in stale)
        warnings.append(f"the client is still that of the former image: {shown}. {CHOSEN_ANEW}")
    return warnings
