"""From a pod that asks for GPUs to the pod with the client in it. Pure, and the second pass changes nothing.

What is written is `bitfusion_client.pod.pod_contract`. Of a pod's own only those containers change that ask:
their Bitfusion resources become units, mounts are added, and with ``all`` the command is put under
``bitfusion run``. No environment variable is touched.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.command.command_line import format_options, run_command
from bitfusion_client.command.find_client import COMMAND
from bitfusion_client.errors import InvalidRequest, WrongKey
from bitfusion_client.kubernetes.carried_annotations import is_carried_annotation
from bitfusion_client.kubernetes.names import (
    ANNOTATION_MANAGEMENT,
    MANAGEMENT_INJECTION,
    QUEUE_GATE,
    RESOURCE_UNITS,
    is_size_resource,
)
from bitfusion_client.kubernetes.notebook_request import is_left_alone
from bitfusion_client.kubernetes.raw_objects import annotations_of, labels_of, mapping, text
from bitfusion_client.kubernetes.refusals import refusal
from bitfusion_client.pod.pod_contract import (
    ANNOTATION_PATH,
    ANNOTATION_STATUS,
    CLIENT_FOLDER,
    COMMAND_FILE,
    STATUS_INJECTED,
)
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_cluster.webhooks.review import UNPROCESSABLE, UNTOUCHED, Review, Verdict
from bitfusion_device_plugin.injector.injection.container_mounts import client_mounts, with_mounts
from bitfusion_device_plugin.injector.injection.init_containers import with_init_containers, with_volumes
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_annotations import effective_annotations
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from bitfusion_device_plugin.injector.injection.pod_request import AskingContainer, PodRequest, pod_request
from bitfusion_device_plugin.injector.injection.recorded_requests import Record, escaped

Pod = dict[str, Any]

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"  # of a static pod; the kubelet runs it in any case

WRONG_SYSTEM = "has no Bitfusion client, which is a program for Linux"
RUN_ON_LINUX = "Take the size out of the pod, or run it on Linux."
PAST_THE_QUEUE = (
    "goes around the scheduler, which keeps a pod waiting until its units of the Bitfusion pool are free"
)
CHOOSE_OTHERWISE = (
    "Take it out, and choose the node by spec.nodeSelector (kubernetes.io/hostname) or by spec.affinity."
)
CLIENT = f"{CLIENT_FOLDER}/{COMMAND_FILE}"
SET_COMMAND = (
    f"Write the command into the pod, or use {ANNOTATION_MANAGEMENT}: {MANAGEMENT_INJECTION} and start "
    "bitfusion run inside."
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot be: one line, as the form's status column and the StatefulSet's events show it."""

    message: str


class _OddShape(Exception):
    """Something that the API refuses by itself: it is let through unchanged."""


def injected_pod(
    pod: Pod,
    namespace: str,
    settings: InjectorSettings = DEFAULT_SETTINGS,
    notebook: Mapping[str, object] | None = None,
) -> Pod | Refusal:
    """The pod with the client, the same object if nothing is to be changed, or why it cannot be.

    Parts that do not change are shared with the pod given, which is never written to.

    Args:
        pod: As it is sent for admission; of any shape.
        namespace: That of the request; the pod's own field may still be empty.
        settings: The administrator's.
        notebook: ``metadata.annotations`` of the pod's Notebook as it is now, where there is one: its values
            win over the pod's, which come from a template that may be old.
    """
    if namespace in SYSTEM_NAMESPACES or is_left_alone(labels_of(pod)):
        return pod
    annotations = annotations_of(pod)
    if MIRROR_ANNOTATION in annotations:
        return pod
    effective = effective_annotations(annotations, notebook)
    try:
        request = pod_request(pod, effective, settings)
        if request is None:
            return pod
        return _with_client(pod, request, effective, settings)
    except InvalidRequest as error:
        return Refusal(refusal(error))
    except _OddShape:
        return pod


def _with_client(
    pod: Pod, request: PodRequest, annotations: Mapping[str, Any], settings: InjectorSettings
) -> Pod:
    spec = pod["spec"]
    system = text(mapping(spec.get("os")).get("name"))
    if system not in ("", "linux"):
        raise WrongKey("spec.os.name", system, WRONG_SYSTEM, RUN_ON_LINUX, f"spec.os.name: {system}")
    gates = _gates(spec) if settings.gates else {}
    client = request.client
    records = [
        Record(asking.name, asking.request, asking.units, client.kind, client.package)
        for asking in request.containers
    ]
    containers = list(_items(spec, "containers"))
    for asking in request.containers:
        containers[asking.place] = _container(containers[asking.place], asking, request, annotations)
    like = containers[request.containers[0].place]
    init = with_init_containers(spec, _items(spec, "initContainers"), records, client, settings, like)
    return {
        **pod,
        "metadata": _metadata(pod, annotations),
        "spec": {
            **spec,
            "containers": containers,
            "initContainers": init,
            "volumes": with_volumes(_items(spec, "volumes"), records, settings),
            **gates,
        },
    }


def _gates(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Ours behind those of others. A gate can be set at a pod's creation only; later only be taken away."""
    node = text(spec.get("nodeName"))
    if node:
        raise WrongKey("spec.nodeName", node, PAST_THE_QUEUE, CHOOSE_OTHERWISE, f"spec.nodeName: {node}")
    present = _items(spec, "schedulingGates")
    if any(gate.get("name") == QUEUE_GATE for gate in present):
        return {}
    return {"schedulingGates": [*present, {"name": QUEUE_GATE}]}


def _container(
    container: Mapping[str, Any], asking: AskingContainer, request: PodRequest, annotations: Mapping[str, Any]
) -> dict[str, Any]:
    mounts = client_mounts(container, request.client.kind, request.command_path)
    changed = {
        "resources": _resources(container, str(asking.units)),
        "volumeMounts": with_mounts(_items(container, "volumeMounts"), mounts),
    }
    if request.wraps:
        management = annotations.get(ANNOTATION_MANAGEMENT)
        changed["command"] = wrapped_command(container, asking.request, management)
    return {**container, **changed}


def _resources(container: Mapping[str, Any], units: str) -> dict[str, Any]:
    """Units in place of sizes. In the requests only where some were: Kubernetes adds what is missing."""
    resources = dict(_map(container, "resources"))
    for part in ("limits", "requests"):
        given = _map(resources, part)
        kept = {name: value for name, value in given.items() if not is_size_resource(name)}
        if part == "limits" or len(kept) < len(given) or RESOURCE_UNITS in kept:
            kept[RESOURCE_UNITS] = units
            resources[part] = kept
    return resources


def _metadata(pod: Pod, annotations: Mapping[str, Any]) -> dict[str, Any]:
    metadata = _map(pod, "metadata")
    written = {
        name: value
        for name, value in annotations.items()
        if is_carried_annotation(name) or name == ANNOTATION_PATH
    }
    present = _map(metadata, "annotations")
    return {**metadata, "annotations": {**present, **written, ANNOTATION_STATUS: STATUS_INJECTED}}


def _items(parent: Mapping[str, Any], name: str) -> list[Any]:
    """A list that may be absent; raises _OddShape for anything else."""
    value = parent.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not set(map(type, value)) <= {dict}:
        raise _OddShape
    return value


def _map(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A map that may be absent; raises _OddShape for anything else."""
    value = parent.get(name)
    if value is not None and not isinstance(value, dict):
        raise _OddShape
    return value or {}


def admit_pod(
    review: Review, settings: InjectorSettings, notebook: Mapping[str, object] | None = None
) -> Verdict:
    """The verdict on a pod's creation, for the first or another time; a dry run is answered the same.

    `notebook` are the annotations of its Notebook, see `injected_pod`.
    """
    pod = review.object
    if pod is None or review.kind != "Pod" or review.sub_resource or review.operation != "CREATE":
        return UNTOUCHED
    result = injected_pod(pod, review.namespace, settings, notebook)
    if isinstance(result, Refusal):
        return Verdict(False, message=result.message, code=UNPROCESSABLE)
    patch = difference(pod, result)
    return Verdict(patch=patch) if patch else UNTOUCHED


def wrapped_command(container: Mapping[str, Any], request: GpuRequest, management: object) -> list[Any]:
    """The command that runs the container's own one with the GPUs; its arguments stay where they are.

    A command that starts the client by itself stays as it is, so that a second pass changes nothing.

    Raises:
        WrongKey: There is no command, and nobody here knows the one of the image.
    """
    command = container.get("command")
    if not isinstance(command, list) or not command:
        name = text(container.get("name"))
        problem = (
            f'wants the command of container "{name}" run with the GPUs, and it has none but its image\'s'
        )
        raise WrongKey(ANNOTATION_MANAGEMENT, management, problem, SET_COMMAND)
    if not all(isinstance(word, str) for word in command) or not command[0] or _starts_client(command):
        return command
    start = [CLIENT, "run", *(escaped(word) for word in format_options(request)), "--"]
    if len(command) == 1 and not container.get("args"):
        # the client splits a word that stands alone; `run_command` knows what to do
        return start + run_command(CLIENT, request, command)[len(start) :]
    return start + command


def _starts_client(command: list[str]) -> bool:
    """``bitfusion run …``, as a command or as a shell's line."""
    if posixpath.basename(command[0]) == COMMAND:
        return True
    lines = (word.split(maxsplit=2) for word in command)
    return any(
        len(words) > 1 and posixpath.basename(words[0]) == COMMAND and words[1] == "run" for words in lines
    )
