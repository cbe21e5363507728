"""Reads raw Kubernetes objects of any shape: metadata, annotations, labels, containers, size limits, owners.

Admission, the reconciler and the form's hook read objects before any schema has been applied to them, so
every reader here accepts anything: where a mapping, a list or a text is expected and something else stands,
it answers as if nothing stood there. None raises, and none changes what it is given.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.names import is_size_resource
from bitfusion_client.request.quantities import is_zero

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    RawObject = Mapping[str, Any]

NOTEBOOK_KIND = "Notebook"
NOTEBOOK_GROUP = "kubeflow.org/"  # served in several versions, whose objects are the same


def mapping(value: object) -> RawObject:
    """The value if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(values: object) -> list[RawObject]:
    """The JSON objects of a list; empty if the value is no list."""
    return [item for item in values if isinstance(item, dict)] if isinstance(values, list) else []


def text(value: object) -> str:
    """The value if it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def whole_number(value: object, default: int) -> int:
    """The value if it is a whole number, otherwise `default`."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def metadata_of(data: RawObject) -> RawObject:
    """``metadata`` of an object or of a pod template."""
    return mapping(data.get("metadata"))


def annotations_of(data: RawObject) -> RawObject:
    """``metadata.annotations``; the values are not checked."""
    return mapping(metadata_of(data).get("annotations"))


def labels_of(data: RawObject) -> RawObject:
    """``metadata.labels``; the values are not checked."""
    return mapping(metadata_of(data).get("labels"))


def is_being_deleted(data: RawObject) -> bool:
    """Whether somebody has deleted the object and finalizers still hold it."""
    return bool(metadata_of(data).get("deletionTimestamp"))


def pod_template_of(data: RawObject) -> RawObject:
    """``spec.template`` of a Notebook or a StatefulSet."""
    return mapping(mapping(data.get("spec")).get("template"))


def pod_spec_of(data: RawObject) -> RawObject:
    """``spec.template.spec`` of a Notebook or a StatefulSet."""
    return mapping(pod_template_of(data).get("spec"))


def containers_of(spec: RawObject) -> list[RawObject]:
    """The containers of a pod's spec, init containers not among them."""
    return mappings(spec.get("containers"))


def init_containers_of(spec: RawObject) -> list[RawObject]:
    """The init containers of a pod's spec."""
    return mappings(spec.get("initContainers"))


def limits_of(container: RawObject) -> RawObject:
    """The limits of a container, of all resources."""
    return mapping(mapping(container.get("resources")).get("limits"))


def requests_of(container: RawObject) -> RawObject:
    """The requests of a container, of all resources."""
    return mapping(mapping(container.get("resources")).get("requests"))


def size_limits_of(container: RawObject) -> dict[str, Any]:
    """The limits of a container that ask for Bitfusion GPUs, sorted by name; known sizes or not."""
    limits = limits_of(container)
    return {name: limits[name] for name in sorted(limits) if is_size_resource(name)}


def asks_for_gpus(container: RawObject) -> bool:
    """Whether a container's limits have a Bitfusion size, right or wrong; 0 of one is none."""
    # each review of a pod asks this of each container: a loop costs half of what a generator does
    for name, value in limits_of(container).items():  # noqa: SIM110
        if is_size_resource(name) and not is_zero(value):
            return True
    return False


def notebook_owner(data: RawObject) -> RawObject | None:
    """The reference in ``ownerReferences`` to a Notebook of Kubeflow's, None if there is none."""
    for reference in mappings(metadata_of(data).get("ownerReferences")):
        is_notebook = reference.get("kind") == NOTEBOOK_KIND
        if is_notebook and text(reference.get("apiVersion")).startswith(NOTEBOOK_GROUP):
            return reference
    return None
