"""A notebook's pod as the API tells it, its StatefulSet's template, its claims; and the pod made of them."""

from __future__ import annotations

import copy
from typing import Any

from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS, PodSettings
from bitfusion_client.gpu_pods.size_rules import rule_for
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.pod.gpu_pod import gpu_pod

DIGEST = "sha256:" + "5f" * 32
UID = "0b9c7d55-6f7e-4d3c-9a39-1f0a3c5c8e01"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def template() -> dict[str, Any]:
    """`spec.template` of the StatefulSet that Kubeflow's controller makes of a Notebook."""
    return {
        "metadata": {"labels": {"statefulset": "digits", "notebook-name": "digits", "app": "digits"}},
        "spec": {
            "serviceAccountName": "default-editor",
            "securityContext": {"fsGroup": 100, "runAsUser": 1000},
            "containers": [
                {
                    "name": "digits",
                    "image": "team/notebook:v3",
                    "imagePullPolicy": "IfNotPresent",
                    "env": [{"name": "NB_PREFIX", "value": "/notebook/team-a/digits"}],
                    "ports": [{"containerPort": 8888, "name": "notebook-port", "protocol": "TCP"}],
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "1Gi"},
                        "limits": {"cpu": "600m", "memory": "1288490188", "bitfusion.io/gpu-50": "1"},
                    },
                    "securityContext": RESTRICTED,
                    "volumeMounts": [
                        {"name": "home", "mountPath": "/home/jovyan"},
                        {"name": "dshm", "mountPath": "/dev/shm"},
                    ],
                }
            ],
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "digits-home"}},
                {"name": "dshm", "emptyDir": {"medium": "Memory"}},
                {"name": "unused", "emptyDir": {}},
            ],
        },
    }


def notebook() -> dict[str, Any]:
    """The pod that runs: with a sidecar, a PodDefault's volume, the API's token, what our injector adds."""
    spec = copy.deepcopy(template()["spec"])
    main = spec["containers"][0]
    main["volumeMounts"] += [
        {"name": "datasets", "mountPath": "/data", "readOnly": True},
        {"name": "bitfusion-client", "mountPath": "/bitfusion", "subPath": "digits", "readOnly": True},
        {
            "name": "bitfusion-client",
            "mountPath": "/usr/local/bin/bitfusion",
            "subPath": "digits/bin/bitfusion",
            "readOnly": True,
        },
        {
            "name": "kube-api-access-x7k2p",
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "readOnly": True,
        },
    ]
    main["env"] += [{"name": "TOKEN_OF_A_PODDEFAULT", "value": "secret"}]
    spec["containers"] += [{"name": "istio-proxy", "image": "istio/proxyv2:1.24"}]
    spec["initContainers"] = [
        {"name": "istio-init", "image": "istio/proxyv2:1.24"},
        {"name": "bitfusion-client", "image": "kubeflow-bitfusion/client:0.1.0"},
    ]
    spec["volumes"] += [
        {"name": "datasets", "configMap": {"name": "datasets", "defaultMode": 420}},
        {"name": "bitfusion-client", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "istio-envoy", "emptyDir": {}},
        {
            "name": "kube-api-access-x7k2p",
            "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
        },
    ]
    spec |= {
        "nodeName": "n1",
        "enableServiceLinks": True,
        "priority": 0,
        "tolerations": [
            {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "nodeSelector": {"pool": "cpu"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-0",
            "namespace": "team-a",
            "uid": UID,
            "labels": {
                "statefulset": "digits",
                "notebook-name": "digits",
                "app": "digits",
                "access-ml-pipeline": "true",
            },
            "annotations": {"bitfusion.io/request": "-n 1 -p 0.5", "istio.io/rev": "default"},
        },
        "spec": spec,
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "istio-proxy", "imageID": "docker.io/istio/proxyv2@sha256:" + "0" * 64},
                {"name": "digits", "imageID": f"docker.io/team/notebook@{DIGEST}"},
            ],
        },
    }


def claim(*modes: str, storage_class: str = "standard") -> dict[str, Any]:
    return {
        "metadata": {"name": "digits-home"},
        "spec": {"accessModes": list(modes), "storageClassName": storage_class},
        "status": {"accessModes": list(modes), "phase": "Bound"},
    }


def made(
    *,
    pod: Any = None,
    of_template: Any = ...,
    claims: Any = None,
    request: GpuRequest | None = None,
    settings: PodSettings = DEFAULT_SETTINGS,
    **others: Any,
) -> dict[str, Any]:
    """The GPU pod, for whole GPUs of a home that may be mounted anywhere unless told otherwise."""
    request = request or GpuRequest(1)
    given: dict[str, Any] = {
        "notebook": notebook() if pod is None else pod,
        "template": template() if of_template is ... else of_template,
        "container": "digits",
        "claims": {"digits-home": claim("ReadWriteMany")} if claims is None else claims,
        "filled_rule": rule_for(request, settings.rules),
        "request": request,
        "settings": settings,
        "name": "digits-0-gpu-7f3a",
        "queue": "",
        **others,
    }
    return gpu_pod(**given)


def program(pod: dict[str, Any]) -> dict[str, Any]:
    """Its container."""
    (found,) = pod["spec"]["containers"]
    assert found["name"] == "program"
    return dict(found)
