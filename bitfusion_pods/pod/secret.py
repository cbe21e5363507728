"""The Secret that a GPU pod mounts as its client's folder: the agent, its key, whom it lets in. Pure.

It has the pod's name and the pod as its owner, so that it goes with the pod whatever happens to who made it.
"""

from __future__ import annotations

from binascii import b2a_base64

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import annotations_of, labels_of, metadata_of, text
from bitfusion_client.pod import pod_contract as pod

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCRIPT, AGENT = "bitfusion", "agent.zip"
PATHS = {
    SCRIPT: pod.COMMAND_FILE,
    AGENT: AGENT,
    **{
        name: f"{pod.KEYS_FOLDER}/{name}"
        for name in (pod.KEY_FILE, pod.CERTIFICATE_FILE, pod.CLIENT_CERTIFICATE_FILE)
    },
    **{
        name: f"{pod.POD_FOLDER}/{name}"
        for name in (
            *(pod.NAME_FILE, pod.NAMESPACE_FILE, pod.UID_FILE, pod.NOTEBOOK_FILE, pod.CONTAINER_FILE),
            *(pod.REQUEST_FILE, pod.CLIENT_FILE, pod.SETTINGS_FILE),
        )
    },
}
"""Of each key of the Secret where it lies in the folder."""

READABLE, EXECUTABLE = 0o444, 0o555  # for whatever user the container has: nobody else mounts it


def secret_volume(name: str) -> dict[str, Any]:
    """The volume of the pod with this name."""
    items = [
        {"key": key, "path": path, **({"mode": EXECUTABLE} if key == SCRIPT else {})}
        for key, path in PATHS.items()
    ]
    secret = {"secretName": name, "defaultMode": READABLE, "items": items}
    return {"name": pod.CLIENT_VOLUME, "secret": secret}


def secret_mount() -> dict[str, Any]:
    """Where the program's container has it."""
    return {"name": pod.CLIENT_VOLUME, "mountPath": pod.CLIENT_FOLDER, "readOnly": True}


def agent_secret(
    made: Mapping[str, Any], notebook: Mapping[str, Any], settings: str, files: Mapping[str, bytes | str]
) -> dict[str, Any]:
    """The Secret, as it is posted to the API.

    Args:
        made: The GPU pod, as the API has made it.
        notebook: The notebook's pod, whose Notebook is told as the one for which the GPU is held.
        settings: The admin's, JSON.
        files: The agent and its keys, by their keys in the Secret; the rest is about the pod.
    """
    metadata = metadata_of(made)
    name, namespace, uid = (text(metadata.get(each)) for each in ("name", "namespace", "uid"))
    told = {
        pod.NAME_FILE: name,
        pod.NAMESPACE_FILE: namespace,
        pod.UID_FILE: uid,
        pod.NOTEBOOK_FILE: text(labels_of(notebook).get(pod.LABEL_NOTEBOOK)),
        pod.CONTAINER_FILE: pod.PROGRAM_CONTAINER,
        pod.REQUEST_FILE: text(annotations_of(made).get(pod.ANNOTATION_HOLDS)),
        pod.CLIENT_FILE: pod.PODS,
        pod.SETTINGS_FILE: settings,
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {pod.LABEL_GPU_POD_OF: text(labels_of(made).get(pod.LABEL_GPU_POD_OF))},
            "ownerReferences": [{**owner, "controller": False, "blockOwnerDeletion": False}],
        },
        "type": "Opaque",
        "immutable": True,  # no kubelet watches it
        "data": {key: _base64(value) for key, value in {**told, **files}.items()},
    }


def _base64(value: bytes | str) -> str:
    data = value.encode() if isinstance(value, str) else value
    return b2a_base64(data, newline=False).decode("ascii")
