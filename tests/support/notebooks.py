"""Builders of Notebooks, StatefulSets and pods as Kubeflow's form and controller and Kubernetes make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

IMAGE = "kubeflownotebookswg/jupyter-scipy:v1.8.0"
CREATOR = {
    "notebooks.kubeflow.org/server-type": "jupyter",
    "notebooks.kubeflow.org/creator": "user@example.com",
}
"""The annotations that the form sets."""


def container(name: str = "nb", limits: Mapping[str, Any] | None = None, image: str = IMAGE) -> Object:
    """A container with nothing but a name, an image and, if given, limits."""
    made: Object = {"name": name, "image": image}
    if limits is not None:
        made["resources"] = {"limits": dict(limits)}
    return made


def bare_notebook(
    *containers: Object,
    name: str = "nb",
    version: str = "v1",
    init_containers: Sequence[Object] = (),
    **metadata: Any,
) -> Object:
    """A Notebook with these containers and nothing that is not given.

    Args:
        containers: See `container`; none is allowed, too.
        name: Of the Notebook.
        version: Of the API.
        init_containers: As in a pod's spec.
        metadata: Further fields of the metadata: namespace, labels, annotations, uid, …; None leaves one out.
    """
    pod: Object = {"containers": list(containers)}
    if init_containers:
        pod["initContainers"] = list(init_containers)
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "Notebook",
        "metadata": {"name": name, **{key: value for key, value in metadata.items() if value is not None}},
        "spec": {"template": {"spec": pod}},
    }


def form_notebook(
    name: str = "nb",
    limits: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    *,
    namespace: str = "ann",
    image: str = IMAGE,
    version: str = "v1beta1",
    **metadata: Any,
) -> Object:
    """The Notebook that the form's backend posts for a user's choice.

    As seen from the backends of Kubeflow 1.4 to 1.11: v1beta1, GPUs in the limits only, no command, no
    security context.

    Args:
        name: Of the Notebook and its container.
        limits: Beside those of cpu and memory.
        annotations: Beside those of the form.
        labels: Beside `app`.
        namespace: Of the user.
        image: Of the container.
        version: Of the API.
        metadata: Further fields of the metadata, as uid.
    """
    made = container(name, {"cpu": "0.6", "memory": "1.2Gi", **(limits or {})}, image)
    made["resources"]["requests"] = {"cpu": "0.5", "memory": "1Gi"}
    made |= {
        "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
        "env": [],
    }
    notebook = bare_notebook(
        made,
        name=name,
        version=version,
        namespace=namespace,
        labels={"app": name, **(labels or {})},
        annotations={**CREATOR, **(annotations or {})},
        **metadata,
    )
    notebook["spec"]["template"]["spec"] |= {
        "serviceAccountName": "default-editor",
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        "tolerations": [],
    }
    return notebook


def owner_reference(owner: Object) -> Object:
    """What a controller writes into the objects it makes for `owner`."""
    metadata = owner["metadata"]
    return {
        "apiVersion": "kubeflow.org/v1beta1" if owner["kind"] == "Notebook" else owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def notebook_stateful_set(
    notebook: Object,
    annotations: Mapping[str, str] | None = None,
    *,
    replicas: int | None = 1,
    owned: bool = True,
    **status: Any,
) -> Object:
    """The StatefulSet that Kubeflow's notebook controller makes of a Notebook.

    Args:
        notebook: Whose containers the template gets.
        annotations: The template's; None for a template without any.
        replicas: None leaves them out, which the API reads as 1.
        owned: Whether it says whose it is.
        status: Fields of the status that are not those of a StatefulSet at rest.
    """
    name = notebook["metadata"]["name"]
    template: Object = {
        "metadata": {"labels": {"statefulset": name, "notebook-name": name}},
        "spec": {**notebook["spec"]["template"]["spec"]},
    }
    if annotations is not None:
        template["metadata"]["annotations"] = dict(annotations)
    count = 1 if replicas is None else replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": notebook["metadata"].get("namespace", "ann"),
            "uid": f"uid-of-sts-{name}",
            **({"ownerReferences": [owner_reference(notebook)]} if owned else {}),
        },
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": {"statefulset": name}},
            "serviceName": "",
            "template": template,
        },
        "status": {
            "replicas": count,
            "readyReplicas": count,
            **({"updatedReplicas": count} if count else {}),
            "currentRevision": "r1",
            "updateRevision": "r1",
            **status,
        },
    }


def stateful_set_pod(
    stateful_set: Object,
    annotations: Mapping[str, str] | None = None,
    *,
    phase: str = "Pending",
    node: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Object:
    """The first pod of a StatefulSet.

    Args:
        stateful_set: Whose template it follows.
        annotations: Of the pod.
        phase: Of its status.
        node: Where it was scheduled.
        limits: Of its first container, where an injector has changed them.
    """
    metadata = stateful_set["metadata"]
    containers = list(stateful_set["spec"]["template"]["spec"]["containers"])
    if limits is not None:
        containers[0] = {**containers[0], "resources": {"limits": dict(limits)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-0",
            "namespace": metadata["namespace"],
            "uid": f"uid-of-pod-{metadata['name']}",
            "annotations": dict(annotations or {}),
            "ownerReferences": [owner_reference(stateful_set)],
        },
        "spec": {"containers": containers, **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }
