"""Records of StatefulSets, namespaces and pods: the few fields that decide, so that thousands stay small.

Equal and small as records of Notebooks are (`bitfusion_cluster.notebooks.notebook_record`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bitfusion_client.kubernetes.names import (
    ADMISSION_IGNORE,
    LABEL_ADMISSION,
)
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    asks_for_gpus,
    containers_of,
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
from bitfusion_client.pod.pod_contract import ANNOTATION_STATUS, STATUS_INJECTED
from bitfusion_cluster.notebooks.notebook_record import ContainerRecord, asking_containers, own_annotations

KEPT_REFERENCE = 254
"""Characters of a name or uid in an ownerReference, at which nobody looks: one more than a name can have."""


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

    @property
    def owner_key(self) -> tuple[str, str]:
        """Namespace and name of the Notebook."""
        return self.namespace, self.owner_name

    @property
    def pod_name(self) -> str:
        """The only pod that it has."""
        return f"{self.name}-0"


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
        owner_name=text(owner.get("name"))[:KEPT_REFERENCE],
        owner_uid=text(owner.get("uid"))[:KEPT_REFERENCE],
        replicas=whole_number(mapping(data.get("spec")).get("replicas"), 1),  # absent means 1
        ready=whole_number(status.get("readyReplicas"), 0) > 0,
        revising=_is_revising(status),
        has_pods=whole_number(status.get("replicas"), 0) > 0,
        annotations=own_annotations(annotations),
        has_annotations=bool(annotations),
        containers=asking_containers(containers_of(pod_spec_of(data))),
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
