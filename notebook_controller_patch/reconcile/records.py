"""What the caches keep of an object: the few fields that decide, so that thousands of them stay small.

Two records are equal when nothing that decides differs; the resourceVersion does not take part. Kubeflow's
culler touches each Notebook about once a minute (`notebooks.kubeflow.org/last-activity`): such a change
gives an equal record and nobody is woken.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bitfusion_client.kubernetes_names import (
    ANNOTATION_PENDING,
    LABEL_ADMISSION,
    LABEL_REQUESTED,
    is_carried_annotation,
    is_size_resource,
)

OWN_LABELS = (LABEL_REQUESTED, LABEL_ADMISSION)
NOTEBOOK_KIND = "Notebook"
NOTEBOOK_GROUP = "kubeflow.org/"
ANNOTATION_STOPPED = "kubeflow-resource-stopped"  # its presence counts, its value does not (kubeflow.md §3.1)


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A container's name, image, and those of its limits that ask for Bitfusion GPUs, known size or not."""

    name: str
    image: str
    limits: tuple[tuple[str, Any], ...]

    def to_object(self) -> dict[str, Any]:
        return {"name": self.name, "image": self.image, "resources": {"limits": dict(self.limits)}}


@dataclass(frozen=True, slots=True)
class NotebookRecord:
    """A Notebook as the reconciler and the admission's owner look-up need it.

    `annotations` and `labels` hold only this project's keys; `has_annotations` and `has_labels` say whether
    the object has such a map at all (a JSON patch must create it first). `stopped`: by Kubeflow's annotation.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    containers: tuple[ContainerRecord, ...]
    init_containers: tuple[ContainerRecord, ...]  # only those that ask, which is refused
    stopped: bool
    deleting: bool
    has_annotations: bool
    has_labels: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def to_object(self, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The Notebook in the API's shape, with what is kept of it; for the pure functions.

        `annotations` replaces the record's own.
        """
        metadata: dict[str, Any] = {"namespace": self.namespace, "name": self.name, "uid": self.uid}
        if self.has_annotations or annotations:
            metadata["annotations"] = dict(self.annotations if annotations is None else annotations)
            if self.stopped:
                metadata["annotations"][ANNOTATION_STOPPED] = ""
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
    """A StatefulSet that belongs to a Notebook. `annotations` are the template's, this project's keys only.

    From its status, so a bit late: `pods` is how many pods it has, `ready` whether one of them is ready,
    `revising` whether its pods were made from an older template than the one it has now.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    owner_name: str
    owner_uid: str
    replicas: int
    pods: int
    ready: bool
    revising: bool
    annotations: Mapping[str, str]
    has_annotations: bool
    containers: tuple[ContainerRecord, ...]
    deleting: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def to_object(self) -> dict[str, Any]:
        """The StatefulSet in the API's shape, with what is kept of it; for the pure functions."""
        template: dict[str, Any] = {
            "spec": {"containers": [container.to_object() for container in self.containers]}
        }
        if self.has_annotations:
            template["metadata"] = {"annotations": dict(self.annotations)}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"namespace": self.namespace, "name": self.name, "uid": self.uid},
            "spec": {"replicas": self.replicas, "template": template},
        }


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The pod of a notebook, read once when its StatefulSet has none that is ready."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    annotations: Mapping[str, str]
    asks: bool
    """It carries a size as the form writes it; an injector would have translated it."""
    waiting: bool
    """Pending, on no node, and nobody is deleting it: nothing of it has ever run."""


def notebook_record(data: Mapping[str, Any]) -> NotebookRecord | None:
    """None for what is no usable object. Never raises: what the API stores may have any shape."""
    metadata = _map(data.get("metadata"))
    namespace, name, uid = (_text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    if not namespace or not name or not uid:
        return None
    annotations = _map(metadata.get("annotations"))
    labels = _map(metadata.get("labels"))
    pod = _map(_map(_map(data.get("spec")).get("template")).get("spec"))
    return NotebookRecord(
        namespace=sys.intern(namespace),
        name=name,
        uid=uid,
        resource_version=_text(metadata.get("resourceVersion")),
        annotations=_own(annotations),
        labels=_shared(tuple((name, _text(labels[name])) for name in OWN_LABELS if name in labels)),
        containers=_containers(pod.get("containers")),
        init_containers=tuple(item for item in _containers(pod.get("initContainers")) if item.limits),
        stopped=ANNOTATION_STOPPED in annotations,
        deleting=bool(metadata.get("deletionTimestamp")),
        has_annotations=bool(annotations),
        has_labels=bool(labels),
    )


def statefulset_record(data: Mapping[str, Any]) -> StatefulSetRecord | None:
    """None for what is no usable object, and for StatefulSets that no Notebook owns. Never raises."""
    metadata = _map(data.get("metadata"))
    namespace, name, uid = (_text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    owner = _owner(metadata)
    if not namespace or not name or not uid or owner is None:
        return None
    spec, status = _map(data.get("spec")), _map(data.get("status"))
    template = _map(spec.get("template"))
    annotations = _map(_map(template.get("metadata")).get("annotations"))
    return StatefulSetRecord(
        namespace=sys.intern(namespace),
        name=name,
        uid=uid,
        resource_version=_text(metadata.get("resourceVersion")),
        owner_name=_text(owner.get("name")),
        owner_uid=_text(owner.get("uid")),
        replicas=_count(spec.get("replicas"), 1),  # absent means 1
        pods=_count(status.get("replicas"), 0),
        ready=_count(status.get("readyReplicas"), 0) > 0,
        revising=status.get("currentRevision") != status.get("updateRevision"),
        annotations=_own(annotations),
        has_annotations=bool(annotations),
        containers=_containers(_map(template.get("spec")).get("containers")),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def pod_record(data: Mapping[str, Any]) -> PodRecord | None:
    """None for what is no usable object. Never raises."""
    metadata, spec, status = (_map(data.get(key)) for key in ("metadata", "spec", "status"))
    namespace, name, uid = (_text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    if not namespace or not name or not uid:
        return None
    owners = metadata.get("ownerReferences")
    controllers = [
        owner
        for owner in (owners if isinstance(owners, list) else [])
        if isinstance(owner, dict) and owner.get("kind") == "StatefulSet"
    ]
    return PodRecord(
        namespace=namespace,
        name=name,
        uid=uid,
        resource_version=_text(metadata.get("resourceVersion")),
        owner_uid=_text(controllers[0].get("uid")) if controllers else "",
        annotations=_own(_map(metadata.get("annotations"))),
        asks=any(container.limits for container in _containers(spec.get("containers"))),
        waiting=status.get("phase") == "Pending"
        and not spec.get("nodeName")
        and not metadata.get("deletionTimestamp"),
    )


def _owner(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else []:
        if (
            isinstance(owner, dict)
            and owner.get("kind") == NOTEBOOK_KIND
            and _text(owner.get("apiVersion")).startswith(NOTEBOOK_GROUP)
        ):
            return owner
    return None


def _own(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    return _shared(
        tuple(
            (name, _text(annotations[name]))
            for name in sorted(annotations)
            if is_carried_annotation(name) or name == ANNOTATION_PENDING
        )
    )


@lru_cache(maxsize=4096)
def _shared(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    # thousands of notebooks have the same few annotations: one map for all of them, which nobody changes
    return {sys.intern(name): sys.intern(value) for name, value in items}


def _containers(listed: object) -> tuple[ContainerRecord, ...]:
    return tuple(
        ContainerRecord(
            name=sys.intern(_text(container.get("name"))),
            image=sys.intern(_text(container.get("image"))),
            limits=_sizes(_map(_map(container.get("resources")).get("limits"))),
        )
        for container in (listed if isinstance(listed, list) else [])
        if isinstance(container, dict)
    )


def _sizes(limits: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((sys.intern(name), limits[name]) for name in sorted(limits) if is_size_resource(name))


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object, absent: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else absent
