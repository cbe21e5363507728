"""All that is wrong with a Notebook, and which of it an edit has brought.

A value that was there before is no reason to refuse an edit: a notebook that was wrong before admission was
there is still stopped, culled, labelled and deleted.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.carried_annotations import is_carried_annotation, wrong_annotations
from bitfusion_client.kubernetes.names import ANNOTATION_FILTER
from bitfusion_client.kubernetes.notebook_request import limits_that_ask, resources_of_notebook
from bitfusion_client.kubernetes.raw_objects import annotations_of
from bitfusion_client.kubernetes.request import is_overridden, request_from_kubernetes

if TYPE_CHECKING:
    from collections.abc import Mapping


def wrong_values(notebook: Mapping[str, object]) -> list[InvalidRequest]:
    """What is wrong: each annotation, and the first thing in the resources. Empty for a right Notebook."""
    annotations = annotations_of(notebook)
    found = {error.field: error for error in wrong_annotations(annotations)}
    limits: Mapping[str, object] | None = None
    try:
        limits = limits_that_ask(notebook)
    except InvalidRequest as error:
        found.setdefault(error.field, error)
    try:
        request_from_kubernetes(limits, annotations)
    except InvalidRequest as error:
        found.setdefault(error.field, error)
    return list(found.values())


def brought_by_edit(old: Mapping[str, object], new: Mapping[str, object]) -> list[InvalidRequest]:
    """What of `wrong_values(new)` the edit has brought: its value is another one than before.

    Admission calls it for an update. Amounts compare by what they mean: Kubeflow's culler spells them anew.
    """
    return [error for error in wrong_values(new) if _part(old, error.field) != _part(new, error.field)]


def _part(notebook: Mapping[str, object], field: str) -> object:
    """What decides whether the value of a field is a wrong one, to compare two states of it with ``==``."""
    annotations = annotations_of(notebook)
    containers, init_containers = resources_of_notebook(notebook)
    if field == ANNOTATION_FILTER:
        # its words count only where GPUs are asked for
        return annotations.get(field), bool(containers) or is_overridden(annotations)
    if is_carried_annotation(field):
        return annotations.get(field)
    states = [
        sorted(repr(resources.meaning()) for resources in part) for part in (containers, init_containers)
    ]
    return is_overridden(annotations), states
