"""Builders of pods as the API server sends them for admission."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch

from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference

Object = dict[str, Any]

MANAGEMENT = "auto-management/bitfusion"
STATUS = "auto-management/status"
LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
OS = "bitfusion-client/os"
VERSION = "bitfusion-client/version"
FILTER = "bitfusion-client/filter"
REQUEST = "bitfusion.io/request"
AMOUNT = "bitfusion.io/gpu-amount"
PERCENT = "bitfusion.io/gpu-percent"
MEMORY = "bitfusion.io/gpu-memory"
HALF = "bitfusion.io/gpu-50"
UNITS = "bitfusion.io/gpu"
INJECTION = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}
# What every injected pod is told.
WRITTEN = {STATUS: "injected", LOCAL_VOLUMES: "bitfusion-client"}
WRAPPED = {**INJECTION, MANAGEMENT: "all"}
IMAGE = "ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter-tensorflow-full:v1.11.0"


def container(
    sizes: Mapping[str, Any] | None = None, name: str = "nb", image: str = IMAGE, **fields: Any
) -> Object:
    """A container; a size is in the requests, too, as Kubernetes defaults them."""
    sizes = dict(sizes or {})
    return {
        "name": name,
        "image": image,
        "resources": {
            "limits": {"cpu": "600m", "memory": "1288490188800m", **sizes},
            "requests": {"cpu": "500m", "memory": "1Gi", **sizes},
        },
        **fields,
    }


def pod(
    *containers: Object,
    annotations: Mapping[str, Any] | None = INJECTION,
    init_containers: Sequence[Object] = (),
    notebook: str = "",
    **spec: Any,
) -> Object:
    """A pod with these containers; of a Notebook if its name is given."""
    metadata: Object = {"name": "nb-0"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if notebook:
        metadata["labels"] = {"statefulset": notebook, "notebook-name": notebook}
    made: Object = {"containers": list(containers), **spec}
    if init_containers:
        made["initContainers"] = list(init_containers)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def inject(
    before: Object,
    notebook: Mapping[str, object] | None = None,
    settings: InjectorSettings = DEFAULT_SETTINGS,
    namespace: str = "ann",
) -> Object:
    """The pod after its patch, applied by somebody else's code; checked to be the same for a second pass."""
    given = copy.deepcopy(before)
    result = injected_pod(before, namespace, settings, notebook)
    assert not isinstance(result, Refusal), result.message
    assert before == given, "the pod was changed in place"
    patch = difference(before, result)
    after = jsonpatch.apply_patch(before, copy.deepcopy(patch))
    assert after == result
    again = injected_pod(copy.deepcopy(after), namespace, settings, notebook)
    assert not isinstance(again, Refusal), again.message
    assert difference(after, again) == [], "the second pass changes something"
    return dict(after)


def refused(
    before: Object,
    notebook: Mapping[str, object] | None = None,
    settings: InjectorSettings = DEFAULT_SETTINGS,
) -> str:
    """The words of a refusal: one line, as the form's status column shows it."""
    result = injected_pod(before, "ann", settings, notebook)
    assert isinstance(result, Refusal), "it was let in"
    assert len(result.message.splitlines()) == 1
    assert result.message.isprintable()
    return result.message


def named(items: Sequence[Object], name: str) -> Object:
    """The container or volume of that name."""
    (found,) = [item for item in items if item["name"] == name]
    return found


def mounts(made: Object) -> list[tuple[str, str, str]]:
    """Volume, path and part of it, of each mount of a container."""
    return [
        (mount["name"], mount["mountPath"], mount.get("subPath", ""))
        for mount in made.get("volumeMounts", [])
    ]
