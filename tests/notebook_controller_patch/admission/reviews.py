"""Reviews as the apiserver sends them: objects of Kubeflow's form and controller, wrapped for admission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.notebooks import form_notebook, notebook_stateful_set

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
    return form_notebook(name, sizes, annotations, labels, image=image, version="v1", uid=OWNER_UID)


def statefulset(
    sizes: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    replicas: int | None = 1,
    name: str = "nb",
    owned: bool = True,
) -> dict[str, Any]:
    """A StatefulSet as the notebook controller writes it. `annotations` are the template's, None: none."""
    return notebook_stateful_set(notebook(sizes, name=name), annotations, replicas=replicas, owned=owned)


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
