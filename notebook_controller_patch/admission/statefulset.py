"""Admission of StatefulSets: the annotations of a Notebook reach its pods through the template. Pure.

Running before and after a write, the template keeps what it has: another annotation would remake the pod.
In the write that creates, stops or starts it, or that remakes the pod in any case because a size in it
differs, the Notebook's annotations are copied. Nothing but ``spec.template.metadata.annotations`` is written,
and the same objects always give the same patch: Kubeflow's controller writes the StatefulSet again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.kubernetes.notebook_request import is_left_alone
from bitfusion_client.kubernetes.raw_objects import (
    is_being_deleted,
    labels_of,
    mapping,
    metadata_of,
    notebook_owner,
    text,
)
from bitfusion_cluster.api.json_patch import NotAMap, Operation, map_patch, maps_patch, pointer
from bitfusion_cluster.webhooks.review import UNTOUCHED, Review, Verdict
from notebook_controller_patch.propagation import (
    added_annotations,
    annotations_of_template,
    is_running,
    kept_annotations,
    replicas,
    sizes_differ,
    template_annotations,
)

PATH = ("spec", "template", "metadata", "annotations")


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The Notebook that a StatefulSet belongs to; another one of the same name has another uid."""

    namespace: str
    name: str
    uid: str


def owner_notebook(statefulset: Mapping[str, Any], namespace: str = "") -> OwnerReference | None:
    """The owner of the kind Notebook, None if there is none. `namespace` is that of the request."""
    reference = notebook_owner(statefulset)
    name = text(reference.get("name")) if reference is not None else ""
    if reference is None or not name:
        return None
    space = namespace or text(metadata_of(statefulset).get("namespace"))
    return OwnerReference(space, name, text(reference.get("uid")))


def needs_owner(review: Review, own_username: str = "") -> OwnerReference | None:
    """The Notebook that has to be looked up to decide, None if none is needed."""
    if not _concerns(review, own_username) or _keeps(review):
        return None
    return owner_notebook(review.object or {}, review.namespace)


def starts_pod(review: Review) -> bool:
    """Whether, of a write for which `needs_owner` names a Notebook, a pod starts: creation, start, new sizes.

    What that pod carries stays until it is stopped, so the Notebook must be looked up as it is now.
    """
    return replicas(review.object or {}) >= 1


def admit_statefulset(
    review: Review, owner: Mapping[str, Any] | None, own_username: str = "", certain: bool = True
) -> Verdict:
    """The verdict on a StatefulSet; it is always allowed.

    `owner` are the annotations of its Notebook (empty if it has none); None if it could not be read, or if
    `needs_owner` wants none: then nothing is removed, nor where they are not `certain`. What the user
    `own_username`, the reconciler, writes passes as it is.
    """
    new = review.object
    if new is None or not _concerns(review, own_username) or owner_notebook(new, review.namespace) is None:
        return UNTOUCHED
    current = annotations_of_template(new)
    if _keeps(review):
        wanted = kept_annotations(annotations_of_template(review.old_object), current)
    elif owner is not None:
        wanted = (template_annotations if certain else added_annotations)(current, owner)
    else:
        return UNTOUCHED
    try:
        return Verdict(patch=_template_patch(new, current, wanted))
    except NotAMap:
        return UNTOUCHED  # the API refuses it by itself


def _concerns(review: Review, own_username: str) -> bool:
    if review.object is None or review.kind != "StatefulSet" or review.sub_resource:
        return False
    if review.operation not in ("CREATE", "UPDATE") or (own_username and review.username == own_username):
        return False
    template = mapping(review.object.get("spec")).get("template")
    if not isinstance(template, dict) or is_being_deleted(review.object):
        return False
    # Kubeflow's controller gives a template the labels its Notebook has when it creates it.
    return not is_left_alone(labels_of(template))


def _keeps(review: Review) -> bool:
    return (
        review.operation == "UPDATE"
        and is_running(review.old_object, review.object)
        and not sizes_differ(review.old_object, review.object)
    )


def _template_patch(
    statefulset: Mapping[str, Any], current: Mapping[str, Any] | None, wanted: Mapping[str, Any]
) -> list[Operation]:
    removed = [name for name in current or () if name not in wanted]
    operations = map_patch(pointer(*PATH), current or {}, wanted, removed)
    return maps_patch(statefulset, *PATH) + operations if operations else []
