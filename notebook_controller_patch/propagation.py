"""When a StatefulSet's template takes over its Notebook's carried annotations, as a JSON patch. Pure.

A change of a template's annotations makes Kubernetes remake the pod. So a running notebook keeps what it was
started with, and takes over what has changed in the very write that stops or starts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_client.kubernetes.carried_annotations import (
    INJECTOR_PREFIXES,
    allowed_annotations,
    is_carried_annotation,
)
from bitfusion_client.kubernetes.names import ANNOTATION_PENDING, ANNOTATION_RUNNING
from bitfusion_client.kubernetes.raw_objects import (
    containers_of,
    mapping,
    metadata_of,
    pod_spec_of,
    pod_template_of,
    size_limits_of,
)

Object = Mapping[str, Any]

NOTES_ON_NOTEBOOK = (ANNOTATION_PENDING, ANNOTATION_RUNNING)


def template_annotations(template: Object | None, notebook: Object | None) -> dict[str, Any]:
    """The annotations a template should have. Both arguments are ``metadata.annotations``, None if absent.

    Foreign keys stay as the template has them; those that are carried mirror the Notebook, removals
    included; a value that is not allowed counts as removed. Don't call this for a Notebook that could not be
    read: all that is carried would be removed.
    """
    kept = {name: value for name, value in (template or {}).items() if not is_ours_in_template(name)}
    return {**kept, **allowed_annotations(notebook)}


def added_annotations(template: Object | None, notebook: Object | None) -> dict[str, Any]:
    """The same for a Notebook that may have changed since it was read: nothing of the template is removed."""
    return {**(template or {}), **allowed_annotations(notebook)}


def kept_annotations(old: Object | None, new: Object | None) -> dict[str, Any]:
    """The annotations of a template that is written while its pod runs.

    Those of ours stay as they were in the `old` template, foreign ones are as the `new` one has them.
    """
    foreign = {name: value for name, value in (new or {}).items() if not is_ours_in_template(name)}
    ours = {
        name: value
        for name, value in (old or {}).items()
        if is_ours_in_template(name) and isinstance(value, str)
    }
    return {**foreign, **ours}


def is_ours_in_template(name: str) -> bool:
    """Whether a template's annotation is this project's to set and remove.

    What is pending is noted on the Notebook only, but Kubeflow from 1.8 on copies all its annotations when it
    creates the StatefulSet.
    """
    return is_carried_annotation(name) or name in NOTES_ON_NOTEBOOK or name.startswith(INJECTOR_PREFIXES)


def annotations_of_template(statefulset: Object | None) -> Object | None:
    """``spec.template.metadata.annotations``; None if absent, null or no map."""
    annotations = metadata_of(pod_template_of(mapping(statefulset))).get("annotations")
    return annotations if isinstance(annotations, dict) else None


def is_running(old: Object | None, new: Object | None) -> bool:
    """Whether a StatefulSet has pods before and after a write: a change of its template would remake them.

    The Notebook's annotation ``kubeflow-resource-stopped`` says what somebody wants; replicas say what is.
    """
    return old is not None and new is not None and replicas(old) >= 1 and replicas(new) >= 1


def replicas(statefulset: Object) -> int:
    """``spec.replicas``; 1 if absent or null, as Kubernetes defaults it."""
    value = mapping(statefulset.get("spec")).get("replicas")
    return value if isinstance(value, int) else 1


def sizes_differ(old: Object | None, new: Object | None) -> bool:
    """Whether a write changes a container's Bitfusion limits, so that the pod is remade in any case."""
    return template_sizes(old) != template_sizes(new)


def template_sizes(statefulset: Object | None) -> dict[str, dict[str, str]]:
    """The Bitfusion limits of the template's containers, by the container's name; those without left out."""
    sizes = {}
    for container in containers_of(pod_spec_of(mapping(statefulset))):
        limits = size_limits_of(container)
        if limits:
            sizes[str(container.get("name"))] = {name: str(value) for name, value in limits.items()}
    return sizes
