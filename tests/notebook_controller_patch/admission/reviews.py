"""Reviews as the apiserver sends them: objects of Kubeflow's form and controller, wrapped for admission.

The objects are pinned by golden.json, with all the fields that a real one has; so they are not made by
`tests.support.notebooks`, whose builders may change.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from bitfusion_cluster.webhooks.review import Review, Verdict, answer

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
OWNER_UID = "0f1d5d0a-3c1f-4a6e-9a53-5c1b7f6f2f11"
CONTROLLER = "system:serviceaccount:kubeflow:notebook-controller-service-account"
OURS = "system:serviceaccount:kubeflow:bitfusion-notebook-controller"
IMAGE = "ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter-scipy:v1.10.0"
OLD_IMAGE = "kubeflownotebookswg/jupyter-scipy:v1.7.0"

MANAGEMENT = "auto-management/bitfusion"
OS = "bitfusion-client/os"
VERSION = "bitfusion-client/version"
REQUEST = "bitfusion.io/request"
PENDING = "bitfusion.io/pending"
LABEL = "bitfusion.io/requested"
STOPPED = "kubeflow-resource-stopped"
AMOUNT = "bitfusion.io/gpu-amount"
PERCENT = "bitfusion.io/gpu-percent"
MEMORY = "bitfusion.io/gpu-memory"
DEFAULTS = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}


def notebook(
    sizes: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    image: str = IMAGE,
    name: str = "nb",
) -> dict[str, Any]:
    """A Notebook as the form posts it. `sizes` are limits beside cpu and memory."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": {
            "name": name,
            "namespace": "ann",
            "uid": OWNER_UID,
            "labels": {"app": name, **(labels or {})},
            "annotations": {"notebooks.kubeflow.org/server-type": "jupyter", **(annotations or {})},
            "creationTimestamp": "2026-11-21T07:30:00Z",
            "generation": 1,
        },
        "spec": {"template": {"spec": _pod_spec(name, image, sizes or {})}},
    }


def statefulset(
    sizes: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    replicas: int | None = 1,
    name: str = "nb",
    owned: bool = True,
) -> dict[str, Any]:
    """A StatefulSet as the notebook controller writes it. `annotations` are the template's, None: none."""
    metadata: dict[str, Any] = {"labels": {"statefulset": name, "notebook-name": name, "app": name}}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    owner = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Notebook",
        "name": name,
        "uid": OWNER_UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": "ann",
            "uid": "8ad0b0a5-9d3c-4d40-8a83-51bb0e7f0c09",
            "generation": 3,
            "creationTimestamp": "2026-11-21T07:30:01Z",
            **({"ownerReferences": [owner]} if owned else {}),
        },
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": {"statefulset": name}},
            "serviceName": "",
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": 10,
            "template": {"metadata": metadata, "spec": _pod_spec(name, IMAGE, sizes or {})},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
        "status": {"replicas": 1, "readyReplicas": 1, "observedGeneration": 3},
    }


def review(
    new: Mapping[str, Any] | None,
    old: Mapping[str, Any] | None = None,
    operation: str = "",
    username: str = CONTROLLER,
    kind: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """The AdmissionReview of a creation, or of an update where `old` is given."""
    kind = kind or str((new or old or {}).get("kind", ""))
    group, plural = ("apps", "statefulsets") if kind == "StatefulSet" else ("kubeflow.org", "notebooks")
    names = {"group": group, "version": "v1", "kind": kind}
    resource = {"group": group, "version": "v1", "resource": plural}
    metadata = (new or old or {}).get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": names,
            "resource": resource,
            "requestKind": names,
            "requestResource": resource,
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": operation or ("UPDATE" if old is not None else "CREATE"),
            "userInfo": {"username": username, "groups": ["system:serviceaccounts", "system:authenticated"]},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **fields,
        },
    }


def body(data: Mapping[str, Any]) -> bytes:
    """The review as it is posted."""
    return json.dumps(data).encode()


def answered(parsed: Review, verdict: Verdict) -> dict[str, Any]:
    """The answer, its patch written by the standard library."""
    patch = json.dumps(verdict.patch, separators=(",", ":")).encode()
    return answer(parsed, verdict, base64.b64encode(patch).decode())


def _pod_spec(name: str, image: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "serviceAccountName": "default-editor",
        "containers": [
            {
                "name": name,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "notebook-port", "containerPort": 8888, "protocol": "TCP"}],
                "env": [{"name": "NB_PREFIX", "value": f"/notebook/ann/{name}"}],
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                    "limits": {"cpu": "600m", "memory": "1288490188800m", **sizes},
                },
                "volumeMounts": [
                    {"name": "dshm", "mountPath": "/dev/shm"},
                    {"name": f"{name}-workspace", "mountPath": "/home/jovyan"},
                ],
            }
        ],
        "volumes": [
            {"name": "dshm", "emptyDir": {"medium": "Memory"}},
            {"name": f"{name}-workspace", "persistentVolumeClaim": {"claimName": f"{name}-workspace"}},
        ],
    }


def with_patch_read(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with its patch as what it says: JSON can be written in several ways."""
    response = dict(answer["response"])
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"], validate=True))
    return {**answer, "response": response}
