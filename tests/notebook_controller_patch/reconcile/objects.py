"""Objects as the cluster holds them, in the shapes that Kubeflow and Kubernetes give them."""

from __future__ import annotations

from typing import Any

NOTEBOOKS = "/apis/kubeflow.org/v1/notebooks"
STATEFULSETS = "/apis/apps/v1/statefulsets"
PODS = "/api/v1/pods"
EVENTS = "/api/v1/events"
LEASES = "/apis/coordination.k8s.io/v1/leases"

OS, VERSION, MANAGEMENT = "bitfusion-client/os", "bitfusion-client/version", "auto-management/bitfusion"
REQUEST, LABEL = "bitfusion.io/request", "bitfusion.io/requested"
PENDING, RUNNING = "bitfusion.io/pending", "bitfusion.io/running-request"
IMAGE = "kubeflownotebookswg/jupyter-scipy:v1.8.0"
CLIENT = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}

Object = dict[str, Any]


def notebook(
    name: str = "nb",
    limits: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "ann",
    uid: str | None = None,
) -> Object:
    """A Notebook as Kubeflow's form posts it; `limits` are the Bitfusion ones."""
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-of-{name}",
        "annotations": {"notebooks.kubeflow.org/server-type": "jupyter", **(annotations or {})},
    }
    if labels:
        metadata["labels"] = labels
    container = {
        "name": name,
        "image": IMAGE,
        "resources": {"limits": {"cpu": "0.6", "memory": "1.2Gi", **(limits or {})}},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": metadata,
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def admitted(
    name: str = "nb", limits: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
) -> Object:
    """A Notebook that asks and that admission has seen."""
    return notebook(
        name, limits or {"bitfusion.io/gpu-amount": "2"}, {**CLIENT, **(annotations or {})}, {LABEL: "true"}
    )


def statefulset(
    of: Object,
    replicas: int = 1,
    ready: bool = True,
    annotations: dict[str, str] | None = None,
    pods: int | None = None,
    revising: bool = False,
) -> Object:
    """The StatefulSet of a Notebook as the notebook controller makes it; `annotations` of its template."""
    metadata = of["metadata"]
    template: Object = {"metadata": {"labels": {"notebook-name": metadata["name"]}}, "spec": {}}
    template["spec"]["containers"] = of["spec"]["template"]["spec"]["containers"]
    if annotations is not None:
        template["metadata"]["annotations"] = dict(annotations)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": f"uid-of-sts-{metadata['name']}",
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1beta1",
                    "kind": "Notebook",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"replicas": replicas, "template": template},
        "status": {
            "replicas": replicas if pods is None else pods,
            "readyReplicas": int(ready and replicas > 0),
            "currentRevision": "r1",
            "updateRevision": "r2" if revising else "r1",
        },
    }


def pod(
    of: Object,
    annotations: dict[str, str] | None = None,
    phase: str = "Pending",
    node: str | None = None,
    limits: dict[str, Any] | None = None,
) -> Object:
    """The pod of a StatefulSet; its limits are the template's unless an injector translated them."""
    metadata = of["metadata"]
    containers = of["spec"]["template"]["spec"]["containers"]
    if limits is not None:
        containers = [{**containers[0], "resources": {"limits": limits}}]
    spec: Object = {"containers": containers}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": metadata["name"] + "-0",
            "namespace": metadata["namespace"],
            "uid": f"uid-of-pod-{metadata['name']}",
            "annotations": dict(annotations or {}),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": spec,
        "status": {"phase": phase},
    }
