"""Kubeflow Notebooks v2 as the tests need it: its WorkspaceKind in the cluster, the pod of a Workspace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.cluster import Cluster
from tests.support.waiting import wait_until

Object = dict[str, Any]

CRD = Path(os.environ.get("WORKSPACEKIND_CRD") or Path(__file__).with_name("workspacekind_crd.yaml"))
"""``WORKSPACEKIND_CRD`` names Kubeflow's own file, where it is at hand: the tests are the same."""
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = "/apis/kubeflow.org/v1beta1/workspacekinds"


@contextmanager
def notebooks_v2(cluster: Cluster) -> Iterator[None]:
    """The cluster with v2's WorkspaceKind, without v2 itself; all kinds are gone with it at the end."""
    crd = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    path = f"{CRDS}/{crd['metadata']['name']}"
    cluster.client.create(CRDS, crd)

    def established() -> bool:
        conditions = cluster.client.get(path).get("status", {}).get("conditions") or []
        return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)

    try:
        wait_until(established, "the API server serves WorkspaceKinds", 30)
        yield
    finally:
        cluster.client.delete(path)
        wait_until(lambda: not cluster.client.exists(path), "WorkspaceKinds are gone", 30)


def workspace_pod(
    kind: Mapping[str, Any],
    config: str,
    workspace: str = "mine",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """The pod that v2's controller lets a StatefulSet make of a Workspace.

    Its container is called main and has no command, its name is made by the server's generator, and it has no
    label of a Notebook. Annotations of the Workspace come over those of the kind.
    """
    template = kind["spec"]["podTemplate"]
    (image,) = template["options"]["imageConfig"]["values"]
    (chosen,) = [value for value in template["options"]["podConfig"]["values"] if value["id"] == config]
    prefix = f"/workspace/connect/ann/{workspace}/jupyterlab/"
    stateful_set = f"ws-{workspace}-x7k2p"
    home = {"name": "home-volume", "persistentVolumeClaim": {"claimName": "home"}}
    container = {
        "name": "main",
        "image": image["spec"]["image"],
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http-8888", "containerPort": 8888, "protocol": "TCP"}],
        "securityContext": template["containerSecurityContext"],
        "volumeMounts": [
            {"name": "home-volume", "mountPath": template["volumeMounts"]["home"]},
            *template["extraVolumeMounts"],
        ],
        "env": [{"name": item["name"], "value": prefix} for item in template["extraEnv"]],
        "resources": chosen["spec"].get("resources", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{stateful_set}-0",
            "annotations": {**template["podMetadata"].get("annotations", {}), **(annotations or {})},
            "labels": {
                **template["podMetadata"]["labels"],
                "notebooks.kubeflow.org/workspace-name": workspace,
                "statefulset": workspace,
                "apps.kubernetes.io/pod-index": "0",
            },
        },
        "spec": {
            "containers": [container],
            "securityContext": template["securityContext"],
            "volumes": [home, *template["extraVolumes"]],
        },
    }
