"""A WorkspaceKind of Kubeflow Notebooks v2 (``kubeflow.org/v1beta1``), from the list of sizes.

Facts of v2 (v2.0.0-beta.0 and later, `workspaces/controller`): a Workspace chooses one of the kind's pod
configurations, which sets the resources of the container ``main``; there is no number beside it, so each size
has one for each number. Which ones may be hidden or denied where is decided by their labels; the column of
GPUs in its list shows the label ``gpu``. Every pod runs as an account of its Workspace; the field that named
one before the beta is gone. What is in use can't be changed or taken out of a kind.
No annotation stands on the kind: it would stand on its pods without GPUs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitfusion_client.kubernetes.names import GROUP, LABEL_REQUESTED
from bitfusion_client.request.decimals import plain_number
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import format_mib
from jupyter_ext.spawner.presets import NUMBERS, WITHOUT_GPUS, WITHOUT_GPUS_ID, Preset, presets
from jupyter_ext.spawner.sizes import SizeList
from jupyter_ext.spawner.yaml_document import written_from, yaml_text

DEFAULT_NAME = "jupyterlab-bitfusion"
DEFAULT_TITLE = "JupyterLab with Bitfusion GPUs"
DESCRIPTION = "JupyterLab with the Bitfusion kernel, whose cells take GPUs from the network when they compute"
WITHOUT_GPUS_TEXT = "JupyterLab computes on the CPU"
SHORTEST_NAME, LONGEST_NAME = 2, 128  # characters of what v2 displays

# As in v2's own kinds of JupyterLab; the images are Kubeflow's, which read NB_PREFIX.
HOME = "/home/jovyan"
PORT_ID = "jupyterlab"
PORT = 8888
PREFIX = '{{ httpPathPrefix "jupyterlab" }}'
ICON = "https://jupyter.org/assets/favicons/apple-touch-icon-152x152.png"
GROUP_OF_USERS = 100

Object = dict[str, Any]


def workspace_kind(
    sizes: SizeList,
    image: str,
    numbers: Sequence[int] = NUMBERS,
    name: str = DEFAULT_NAME,
    title: str = DEFAULT_TITLE,
    requests: dict[str, str] | None = None,
) -> Object:
    """The kind as a raw object: JupyterLab in one image, with a pod configuration for each size and number.

    Args:
        sizes: The administrator's list. The size with ``default: true`` is preselected, else no GPU.
        image: The notebook image with the Bitfusion kernel.
        numbers: Of GPUs, one pod configuration each.
        name: Of the object.
        title: What users read.
        requests: ``cpu`` and ``memory`` that every pod configuration asks for; those that are missing are
            left to the namespace's LimitRange.

    Raises:
        WrongFile: as `presets`.
    """
    groups = presets(sizes, numbers)
    chosen = [preset for group in groups for preset in group if preset.size.default and preset.preselected]
    asked = dict(requests or {})
    configs = [_without_gpus(asked), *(_pod_config(preset, asked) for group in groups for preset in group)]
    options = {
        "imageConfig": _image_config(image),
        "podConfig": {
            "spawner": {"default": preset_id(chosen[0]) if chosen else WITHOUT_GPUS_ID},
            "values": configs,
        },
    }
    spawner = {
        "displayName": title,
        "description": DESCRIPTION,
        "icon": {"url": ICON},
        "logo": {"url": ICON},
    }
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "WorkspaceKind",
        "metadata": {"name": name},
        "spec": {"spawner": spawner, "podTemplate": {**_pod_template(), "options": options}},
    }


def kind_text(kind: Object, source: str) -> str:
    """The object as a file for ``kubectl apply``."""
    return f"{written_from(source, 'workspacekind')}\n{yaml_text(kind)}"


def preset_id(preset: Preset) -> str:
    """The id of a pod configuration, ``gpu-50-x2``: it stays the same while size and number do."""
    return f"{preset.size.key[len(GROUP) :]}-x{preset.number}"


def preset_name(preset: Preset) -> str:
    """What users read, in the words of Kubeflow's form: number × size."""
    return f"{preset.number} × {preset.size.label}"


def _pod_template() -> Object:
    """What all pods of the kind have, as the Pod Security standard *restricted* wants it.

    No annotation: it would stand on pods without GPUs, too, which would then wait for the injector.
    """
    return {
        "podMetadata": {"labels": {LABEL_REQUESTED: "true"}},
        "activityProbe": {"jupyter": {"lastActivity": True, "portId": PORT_ID}},
        "volumeMounts": {"home": HOME},
        "ports": [
            {
                "id": PORT_ID,
                "defaultDisplayName": "JupyterLab",
                "protocol": "HTTP",
                "httpProxy": {"removePathPrefix": False},
            }
        ],
        "extraEnv": [{"name": "NB_PREFIX", "value": PREFIX}],
        "extraVolumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
        "extraVolumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        "securityContext": {"fsGroup": GROUP_OF_USERS, "seccompProfile": {"type": "RuntimeDefault"}},
        "containerSecurityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
        },
    }


def _image_config(image: str) -> Object:
    last = image.rpartition("/")[2].partition("@")[0]
    shown = (last if len(last) >= SHORTEST_NAME else image)[-LONGEST_NAME:]  # so the tag is whole
    value = {
        "id": shown,
        "spawner": {"displayName": shown, "description": "JupyterLab with the Bitfusion kernel"},
        "spec": {"image": image, "ports": [{"id": PORT_ID, "port": PORT}]},
    }
    return {"spawner": {"default": shown}, "values": [value]}


def _without_gpus(requests: dict[str, str]) -> Object:
    return _config(WITHOUT_GPUS_ID, WITHOUT_GPUS, WITHOUT_GPUS_TEXT, requests, {}, {})


def _pod_config(preset: Preset, requests: dict[str, str]) -> Object:
    labels = {"gpu": _gpu_label(preset.request)}
    return _config(
        preset_id(preset),
        preset_name(preset),
        preset.request.describe(),
        requests,
        preset.limits,
        labels,
    )


def _config(
    identity: str,
    name: str,
    description: str,
    requests: dict[str, str],
    limits: dict[str, str],
    labels: dict[str, str],
) -> Object:
    spawner: Object = {"displayName": name, "description": description}
    if shown := {**requests, **labels}:
        spawner["labels"] = [{"key": key, "value": value} for key, value in shown.items()]
    resources = {part: dict(given) for part, given in (("requests", requests), ("limits", limits)) if given}
    return {"id": identity, "spawner": spawner, "spec": {"resources": resources} if resources else {}}


def _gpu_label(request: GpuRequest) -> str:
    """``2``, ``0.5``, ``2x0.5``, ``2x8Gi``: a value that a label selector takes, too."""
    if request.memory_mib is not None:
        return f"{request.gpus}x{format_mib(request.memory_mib)}"
    if request.partial is None:
        return str(request.gpus)
    share = plain_number(request.partial)
    return share if request.gpus == 1 else f"{request.gpus}x{share}"
