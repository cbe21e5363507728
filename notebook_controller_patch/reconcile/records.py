"""Records of Notebooks, StatefulSets and pods: the few fields that decide, so that thousands stay small.

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

from bitfusion_client.carried_annotations import is_carried_annotation
from bitfusion_client.client_images import LONGEST_REFERENCE
from bitfusion_client.container_resources import gpu_resources
from bitfusion_client.kubernetes_annotations import LONGEST_REQUEST
from bitfusion_client.kubernetes_names import (
    ADMISSION_IGNORE,
    ANNOTATION_PENDING,
    ANNOTATION_RUNNING,
    LABEL_ADMISSION,
    LABEL_REQUESTED,
)
from bitfusion_client.pod_contract import ANNOTATION_PATH, ANNOTATION_STATUS, STATUS_INJECTED
from bitfusion_client.raw_objects import (
    NOTEBOOK_KIND,
    annotations_of,
    asks_for_gpus,
    containers_of,
    init_containers_of,
    is_being_deleted,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    notebook_owner,
    pod_spec_of,
    pod_template_of,
    text,
    whole_number,
)

OWN_LABELS = (LABEL_REQUESTED, LABEL_ADMISSION)
# Besides those that are carried. The last one is for the injector, which asks for Notebooks.
OWN_ANNOTATIONS = (ANNOTATION_PENDING, ANNOTATION_RUNNING, ANNOTATION_PATH)

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


@dataclass(frozen=True, slots=True)
class StatefulSetRecord:
    """A StatefulSet that belongs to a Notebook.

    Attributes:
        ready: Whether one of its pods is ready; from its status, so a bit late.
        revising: Whether its pods were made from an older template than the one it has now; from its status.
        has_pods: Whether there are any, ready or not; from its status.
        annotations: The template's, and only this project's; `has_annotations` says whether it has any.
        containers: The first ones of the template that ask.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    owner_name: str
    owner_uid: str
    replicas: int
    ready: bool
    revising: bool
    has_pods: bool
    annotations: Mapping[str, str]
    has_annotations: bool
    containers: tuple[ContainerRecord, ...]
    deleting: bool

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class OptedOutNamespace:
    """A namespace whose label keeps webhooks and reconciler away."""

    name: str

    @property
    def key(self) -> tuple[str, str]:
        """As of an object that belongs to no namespace."""
        return "", self.name


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The pod of a notebook, read once when its StatefulSet has none that is ready.

    Attributes:
        owner_uids: Of its owners, one of which is the StatefulSet that made it.
        asks: It carries a size as the form writes it; an injector would have translated it.
        waiting: Pending, on no node, and nobody is deleting it: nothing of it has ever run.
        injected: An injector has seen it.
    """

    name: str
    uid: str
    resource_version: str
    owner_uids: tuple[str, ...]
    annotations: Mapping[str, Any]
    asks: bool
    waiting: bool
    injected: bool


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
        annotations=_own(annotations),
        labels=_shared(tuple((name, text(labels[name])) for name in OWN_LABELS if name in labels)),
        containers=_kept_containers(containers_of(pod), name),
        init_containers=_asking(init_containers_of(pod)),
        deleting=is_being_deleted(data),
        has_annotations=bool(annotations),
        has_labels=bool(labels),
    )


def statefulset_record(data: Mapping[str, Any]) -> StatefulSetRecord | None:
    """The record of a raw StatefulSet; None for what is no usable object, or belongs to no Notebook.

    Never raises. Called by the watch.
    """
    metadata = metadata_of(data)
    namespace, name, uid = (text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    owner = notebook_owner(data)
    if not namespace or not name or not uid or owner is None:
        return None
    status = mapping(data.get("status"))
    annotations = annotations_of(pod_template_of(data))
    return StatefulSetRecord(
        namespace=sys.intern(namespace),
        name=name,
        uid=uid,
        resource_version=text(metadata.get("resourceVersion")),
        owner_name=text(owner.get("name")),
        owner_uid=text(owner.get("uid")),
        replicas=whole_number(mapping(data.get("spec")).get("replicas"), 1),  # absent means 1
        ready=whole_number(status.get("readyReplicas"), 0) > 0,
        revising=_is_revising(status),
        has_pods=whole_number(status.get("replicas"), 0) > 0,
        annotations=_own(annotations),
        has_annotations=bool(annotations),
        containers=_asking(containers_of(pod_spec_of(data))),
        deleting=is_being_deleted(data),
    )


def _is_revising(status: Mapping[str, Any]) -> bool:
    """Whether a StatefulSet's status tells of pods that an older template made.

    Two revisions that differ say so. But a template that is changed between the first pod's creation and the
    StatefulSet's first status leaves both revisions at the new one: then only the pods that are counted as
    updated say it (seen on 1.34; the field is absent for 0).
    """
    if status.get("currentRevision") != status.get("updateRevision"):
        return True
    return whole_number(status.get("updatedReplicas"), 0) < whole_number(status.get("replicas"), 0)


def opted_out_namespace(data: Mapping[str, Any]) -> OptedOutNamespace | None:
    """The record of a namespace that has opted out; None for all others, which are not kept."""
    if labels_of(data).get(LABEL_ADMISSION) != ADMISSION_IGNORE:
        return None
    return OptedOutNamespace(text(metadata_of(data).get("name")))


def pod_record(data: Mapping[str, Any]) -> PodRecord | None:
    """The record of a raw pod; None for what is no usable object. Never raises."""
    metadata, spec, status = metadata_of(data), mapping(data.get("spec")), mapping(data.get("status"))
    name, uid = text(metadata.get("name")), text(metadata.get("uid"))
    if not name or not uid:
        return None
    annotations = annotations_of(data)
    return PodRecord(
        name=name,
        uid=uid,
        resource_version=text(metadata.get("resourceVersion")),
        owner_uids=tuple(text(owner.get("uid")) for owner in mappings(metadata.get("ownerReferences"))),
        annotations=annotations,
        asks=any(map(asks_for_gpus, containers_of(spec))),
        waiting=status.get("phase") == "Pending" and not spec.get("nodeName") and not is_being_deleted(data),
        injected=annotations.get(ANNOTATION_STATUS) == STATUS_INJECTED,
    )


def _own(annotations: Mapping[str, Any]) -> Mapping[str, str]:
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
    asking = _asking(containers)
    if asking:
        return asking
    own = [container for container in containers if container.get("name") == name] or containers
    return tuple(map(_container, own[:1]))


def _asking(containers: Sequence[Mapping[str, Any]]) -> tuple[ContainerRecord, ...]:
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
