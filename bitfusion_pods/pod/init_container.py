"""The init container that fills the client's folder of a GPU pod and makes its key, and both volumes. Pure.

The same program as in notebooks, started with the same words; see `pod_contract`.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import labels_of, mapping, text
from bitfusion_client.pod import pod_contract as pod

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_client.gpu_pods.settings import PodSettings

CLIENT_SIZE, KEYS_SIZE = "256Mi", "1Mi"
ROOT = 0
_FIELDS = {
    pod.ENV_POD_NAME: "metadata.name",
    pod.ENV_POD_NAMESPACE: "metadata.namespace",
    pod.ENV_POD_UID: "metadata.uid",
    pod.ENV_CLIENT_CERTIFICATE: f"metadata.annotations['{pod.ANNOTATION_CLIENT_CERTIFICATE}']",
}


def init_container(
    notebook: Mapping[str, Any],
    settings: PodSettings,
    request: str,
    units: int,
    resources: Mapping[str, Any],
    user: int,
) -> dict[str, Any]:
    """The container.

    Args:
        notebook: The notebook's pod, whose Notebook is told as the one for which the GPU is held.
        settings: The admin's, which go along.
        request: What the pod holds, in options.
        units: The same in percent × amount; 0 if unknown.
        resources: CPU and memory.
        user: As whom it runs; see `user_of`.
    """
    fields = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()
    ]
    values = {
        pod.ENV_NOTEBOOK: text(labels_of(notebook).get(pod.LABEL_NOTEBOOK)),
        pod.ENV_SETTINGS: settings.to_text(),
    }
    words = [pod.VOLUME_PATH, pod.PROGRAM_CONTAINER, request, str(units), pod.PODS, ""]
    return {
        "name": pod.INIT_CONTAINER,
        "image": settings.client_image,
        "imagePullPolicy": "IfNotPresent",
        # the certificate, or the last words of one that failed
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "command": list(pod.INSTALL_COMMAND),
        "args": [_escaped(word) for word in words],
        "env": fields + [{"name": name, "value": _escaped(value)} for name, value in values.items()],
        "resources": dict(resources),
        "volumeMounts": [
            {"name": pod.CLIENT_VOLUME, "mountPath": pod.VOLUME_PATH},
            {"name": pod.KEYS_VOLUME, "mountPath": pod.KEYS_VOLUME_PATH},
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "readOnlyRootFilesystem": True,
        },
    }


def user_of(spec: Mapping[str, Any], *containers: Mapping[str, Any]) -> int:
    """As whom the init container runs: the pod's user, or a container's, since a cluster lets that one in.

    OpenShift has given each namespace a range of users. Root would not be let in by *restricted*.
    """
    for each in (spec, *containers):
        user = mapping(each.get("securityContext")).get("runAsUser")
        if isinstance(user, int) and not isinstance(user, bool) and user > ROOT:
            return user
    return pod.RUN_AS_USER


def our_volumes() -> list[dict[str, Any]]:
    """The client's folder, and the keys, which stay in memory."""
    return [
        {"name": pod.CLIENT_VOLUME, "emptyDir": {"sizeLimit": CLIENT_SIZE}},
        {"name": pod.KEYS_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": KEYS_SIZE}},
    ]


def our_mounts() -> list[dict[str, Any]]:
    """What the program's container has of them."""
    part = pod.PROGRAM_CONTAINER
    return [
        {"name": pod.CLIENT_VOLUME, "mountPath": pod.CLIENT_FOLDER, "subPath": part, "readOnly": True},
        {"name": pod.KEYS_VOLUME, "mountPath": pod.KEYS_PATH, "subPath": part, "readOnly": True},
    ]


def _escaped(word: str) -> str:
    """Without variables that the kubelet would put in."""
    return word.replace("$", "$$")
