"""The record of a Notebook: the few fields of it that decide, so that thousands stay small.

Two records are equal when nothing that decides differs; the resourceVersion does not take part. Kubeflow's
culler touches each Notebook about once a minute (`notebooks.kubeflow.org/last-activity`): such a change
gives an equal record and nobody is woken.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from bitfusion_client.kubernetes.annotations import LONGEST_REQUEST
from bitfusion_client.kubernetes.carried_annotations import is_carried_annotation
from bitfusion_client.kubernetes.client_images import LONGEST_REFERENCE
from bitfusion_client.kubernetes.container_resources import gpu_resources
from bitfusion_client.kubernetes.names import (
    ANNOTATION_PENDING,
    ANNOTATION_RUNNING,
    LABEL_ADMISSION,
    LABEL_REQUESTED,
)
from bitfusion_client.kubernetes.raw_objects import (
    NOTEBOOK_KIND,
    annotations_of,
    containers_of,
    init_containers_of,
    is_being_deleted,
    labels_of,
    metadata_of,
    pod_spec_of,
    text,
)

OWN_LABELS = (LABEL_REQUESTED, LABEL_ADMISSION)
OWN_ANNOTATIONS = (ANNOTATION_PENDING, ANNOTATION_RUNNING)  # besides those that are carried

# What a record keeps of what anybody may write: so much that a value which is too long is still too long for
# those who read it.
KEPT_VALUE = LONGEST_REQUEST + 1  # characters of an annotation
KEPT_IMAGE = LONGEST_REFERENCE + 1  # characters
KEPT_NAME = 253  # characters of a container's name or of a resource
KEPT_QUANTITY = 65  # characters
KEPT_ASKING = 2  # containers that ask: one may
KEPT_LIMITS = 4  # sizes of one container: three may stand side by side


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A container's name, image, and what is Bitfusion's in its limits, right or wrong.

    Of its requests, which may only repeat the limits, what departs from them.
    """

    name: str
    image: str
    limits: tuple[tuple[str, Any], ...]
    requests: tuple[tuple[str, Any], ...] = ()

    def to_object(self) -> dict[str, Any]:
        """The container in the API's shape, with what is kept of it."""
        resources = {"limits": dict(self.limits)}
        if self.requests:
            resources["requests"] = dict(self.requests)
        return {"name": self.name, "image": self.image, "resources": resources}


@dataclass(frozen=True, slots=True)
class NotebookRecord:
    """A Notebook as the reconciler and the look-ups of admission need it.

    Attributes:
        annotations: Only this project's; `has_annotations` says whether the object has any at all, since a
            JSON patch must create the map first. `labels` and `has_labels` likewise.
        containers: The first ones that ask, and the one whose image counts where none asks.
        init_containers: The first ones that ask for GPUs, which is refused.
        deleting: Deleted, but held by finalizers.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    containers: tuple[ContainerRecord, ...]
    init_containers: tuple[ContainerRecord, ...]
    deleting: bool
    has_annotations: bool
    has_labels: bool

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    def to_object(self) -> dict[str, Any]:
        """The Notebook in the API's shape, with what is kept of it; for `notebook_changes`."""
        metadata: dict[str, Any] = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        if self.has_annotations:
            metadata["annotations"] = dict(self.annotations)
        if self.has_labels:
            metadata["labels"] = dict(self.labels)
        pod: dict[str, Any] = {"containers": [container.to_object() for container in self.containers]}
        if self.init_containers:
            pod["initContainers"] = [container.to_object() for container in self.init_containers]
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": NOTEBOOK_KIND,
            "metadata": metadata,
            "spec": {"template": {"spec": pod}},
        }


def notebook_record(data: Mapping[str, Any]) -> NotebookRecord | None:
    """The record of a raw Notebook; None for what is no usable object. Never raises.

    Called by the watch for each object that the API server lists or reports; these may have any shape.
    """
    metadata = metadata_of(data)
    namespace, name, uid = (text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    if not namespace or not name or not uid:
        return None
    annotations, labels, pod = annotations_of(data), labels_of(data), pod_spec_of(data)
    return NotebookRecord(
        namespace=sys.intern(namespace),
        name=name,
        uid=uid,
        resource_version=text(metadata.get("resourceVersion")),
        annotations=own_annotations(annotations),
        labels=_shared(tuple((name, text(labels[name])) for name in OWN_LABELS if name in labels)),
        containers=_kept_containers(containers_of(pod), name),
        init_containers=asking_containers(init_containers_of(pod)),
        deleting=is_being_deleted(data),
        has_annotations=bool(annotations),
        has_labels=bool(labels),
    )


def own_annotations(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    """Those of this project, cut to what a reader of a value that is too long still finds too long."""
    return _shared(
        tuple(
            (name, text(annotations[name])[:KEPT_VALUE])
            for name in sorted(annotations)
            if is_carried_annotation(name) or name in OWN_ANNOTATIONS
        )
    )


@lru_cache(maxsize=512)
def _shared(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    # thousands of notebooks have the same few annotations: one map for all of them, which nobody changes
    return {sys.intern(name): sys.intern(value) for name, value in items}


def _kept_containers(containers: Sequence[Mapping[str, Any]], name: str) -> tuple[ContainerRecord, ...]:
    asking = asking_containers(containers)
    if asking:
        return asking
    own = [container for container in containers if container.get("name") == name] or containers
    return tuple(map(_container, own[:1]))


def asking_containers(containers: Sequence[Mapping[str, Any]]) -> tuple[ContainerRecord, ...]:
    """The first ones that ask for GPUs."""
    asking = (container for container in containers if gpu_resources(container))
    return tuple(map(_container, islice(asking, KEPT_ASKING)))


def _container(container: Mapping[str, Any]) -> ContainerRecord:
    resources = gpu_resources(container)
    return ContainerRecord(
        name=sys.intern(text(container.get("name"))[:KEPT_NAME]),
        image=sys.intern(text(container.get("image"))[:KEPT_IMAGE]),
        limits=_kept_resources(resources.limits),
        requests=_kept_resources(
            {name: value for name, value in resources.requests.items() if not resources.agrees(name)}
        ),
    )


def _kept_resources(resources: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    kept = islice(resources.items(), KEPT_LIMITS)
    return tuple((sys.intern(name[:KEPT_NAME]), _quantity(value)) for name, value in kept)


def _quantity(value: object) -> object:
    """The amount as it stands; of what can be none, so much that it still is none."""
    if isinstance(value, str):
        return value[:KEPT_QUANTITY]
    return value if isinstance(value, (int, float)) and abs(value) < 1e60 else repr(type(value))
