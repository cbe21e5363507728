"""What the template of a StatefulSet takes over from its Notebook, and when. Pure; raw dicts of any shape.

A change of a template's annotations makes Kubernetes remake the pod. So a running notebook keeps what it was
started with, and takes over what has changed in the very write that stops or starts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes_names import ANNOTATION_PENDING, is_carried_annotation, is_size_resource
from bitfusion_client.kubernetes_request import request_from_kubernetes
from bitfusion_client.notebook_request import notebook_request

Object = Mapping[str, Any]

LONGEST_PENDING = 400  # characters


def template_annotations(template: Object | None, notebook: Object | None) -> dict[str, Any]:
    """The annotations a template should have. Both arguments are ``metadata.annotations``, None if absent.

    Foreign keys stay as the template has them; those that are carried mirror the Notebook, removals
    included. A Notebook that could not be read is no Notebook without annotations: don't call this then.
    """
    kept = {name: value for name, value in (template or {}).items() if not is_ours_in_template(name)}
    carried = {
        name: value
        for name, value in (notebook or {}).items()
        if is_carried_annotation(name) and isinstance(value, str)
    }
    return {**kept, **carried}


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

    ``bitfusion.io/pending`` is none that is carried, but Kubeflow from 1.8 on copies it when it creates.
    """
    return is_carried_annotation(name) or name == ANNOTATION_PENDING


def annotations_of_template(statefulset: Object | None) -> Object | None:
    """``spec.template.metadata.annotations``; None if absent, null or no map."""
    annotations = _map(_template(statefulset).get("metadata")).get("annotations")
    return annotations if isinstance(annotations, Mapping) else None


def is_running(old: Object | None, new: Object | None) -> bool:
    """Whether a StatefulSet has pods before and after a write: a change of its template would remake them.

    The Notebook's annotation ``kubeflow-resource-stopped`` is what somebody wishes; replicas are what is.
    """
    return old is not None and new is not None and replicas(old) >= 1 and replicas(new) >= 1


def replicas(statefulset: Object) -> int:
    """``spec.replicas``; 1 if absent or null, as Kubernetes defaults it."""
    value = _map(statefulset.get("spec")).get("replicas")
    return value if isinstance(value, int) else 1


def sizes_differ(old: Object | None, new: Object | None) -> bool:
    """Whether a write changes a container's Bitfusion limits, so that the pod is remade in any case."""
    return template_sizes(old) != template_sizes(new)


def template_sizes(statefulset: Object | None) -> dict[str, dict[str, str]]:
    """The Bitfusion limits of the template's containers, by the container's name; those without left out."""
    sizes = {}
    for container in _containers(statefulset):
        limits = _map(_map(container.get("resources")).get("limits"))
        asked = {name: str(value) for name, value in limits.items() if is_size_resource(name)}
        if asked:
            sizes[str(container.get("name"))] = asked
    return sizes


def pending_change(notebook: Object, statefulset: Object) -> str | None:
    """What the next start of a running notebook will change, for a person; None when nothing is pending.

    ``1 GPU × 50 % instead of 2 GPUs, from the next start on``. Only for a StatefulSet with replicas.
    """
    current = annotations_of_template(statefulset) or {}
    wanted = template_annotations(current, _map(_map(notebook.get("metadata")).get("annotations")))
    names = sorted(
        name
        for name in {*current, *wanted}
        if is_carried_annotation(name) and current.get(name) != wanted.get(name)
    )
    if not names:
        return None
    after, before = _asked_by_notebook(notebook), _asked_by_template(statefulset, current)
    if after != before:
        what = f"{after} instead of {before}"
    else:
        what = ", ".join(_difference(name, current, wanted) for name in names)
    what = " ".join(what.split())
    if len(what) > LONGEST_PENDING:
        what = what[: LONGEST_PENDING - 1] + "…"
    return what + ", from the next start on"


def _difference(name: str, current: Object, wanted: Object) -> str:
    if name not in wanted:
        return f"without {name}"
    instead = f" instead of {current[name]}" if name in current else ""
    return f"{name} {wanted[name]}{instead}"


def _asked_by_notebook(notebook: Object) -> str:
    try:
        request = notebook_request(notebook)
    except InvalidRequest:
        return "a wrong size"
    return request.describe() if request else "no GPU"


def _asked_by_template(statefulset: Object, annotations: Object) -> str:
    limits: dict[str, str] = {}
    for sizes in template_sizes(statefulset).values():
        limits.update(sizes)
    try:
        request = request_from_kubernetes(limits, annotations)
    except InvalidRequest:
        return "a wrong size"
    return request.describe() if request else "no GPU"


def _template(statefulset: Object | None) -> Object:
    return _map(_map(_map(statefulset).get("spec")).get("template"))


def _containers(statefulset: Object | None) -> list[Object]:
    containers = _map(_template(statefulset).get("spec")).get("containers")
    return [item for item in containers if isinstance(item, dict)] if isinstance(containers, list) else []


def _map(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}
