"""From a pod that asks for GPUs to the pod with the client in it. Pure, and the second pass changes nothing.

What is written is `bitfusion_client.pod.pod_contract`. Of a pod's own only those containers change that ask:
their Bitfusion resources become units, mounts are added, and with ``all`` the command is put under
``bitfusion run``. Of the kind `PODS`, which takes nothing of a pool, those resources go. No environment
variable is touched; for the one that an admin may have written see `node_gpus`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.errors import InvalidRequest, WrongKey
from bitfusion_client.kubernetes.carried_annotations import is_carried_annotation
from bitfusion_client.kubernetes.names import (
    ANNOTATION_MANAGEMENT,
    QUEUE_GATE,
    RESOURCE_UNITS,
    is_size_resource,
)
from bitfusion_client.kubernetes.notebook_request import is_left_alone
from bitfusion_client.kubernetes.pod_units import unit_count
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    labels_of,
    limits_of,
    mapping,
    requests_of,
    text,
)
from bitfusion_client.kubernetes.refusals import refusal
from bitfusion_client.pod.pod_contract import (
    ANNOTATION_STATUS,
    INIT_CONTAINER,
    LABEL_GPU_POD_OF,
    PODS,
    STATUS_INJECTED,
)
from bitfusion_cluster.webhooks.review import UNPROCESSABLE, UNTOUCHED, Review, Verdict
from bitfusion_device_plugin.injector.injection.container_mounts import (
    VolumeNames,
    client_mounts,
    volume_names,
    with_mounts,
)
from bitfusion_device_plugin.injector.injection.gpu_nodes import near_gpus
from bitfusion_device_plugin.injector.injection.init_containers import with_init_containers, with_volumes
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from bitfusion_device_plugin.injector.injection.node_gpus import HIDDEN, may_be_hidden
from bitfusion_device_plugin.injector.injection.pod_annotations import effective_annotations
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from bitfusion_device_plugin.injector.injection.pod_request import AskingContainer, PodRequest, pod_request
from bitfusion_device_plugin.injector.injection.recorded_requests import (
    Record,
    recorded_requests,
    wrapped_lines,
)
from bitfusion_device_plugin.injector.injection.wrapped_command import Earlier, wrapped_command

Pod = dict[str, Any]

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"  # of a static pod; the kubelet runs it in any case

WRONG_SYSTEM = "cannot have the Bitfusion client, which is a program for Linux"
RUN_ON_LINUX = "Remove the size from the pod, or run the pod on Linux."
PAST_THE_QUEUE = (
    "bypasses the scheduler, which makes a pod wait until its units of the Bitfusion pool are free"
)
CHOOSE_OTHERWISE = (
    "Remove it, and choose the node by spec.nodeSelector (kubernetes.io/hostname) or by spec.affinity."
)
# The volumes whose loss the cluster autoscaler does not mind, separated by commas and nothing else. All other
# local ones keep a node from being taken away.
LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


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
    labels = labels_of(pod)
    # A GPU pod has its client from its maker; an earlier release made an init container like ours.
    if namespace in SYSTEM_NAMESPACES or is_left_alone(labels) or LABEL_GPU_POD_OF in labels:
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
    client = request.client
    # The scheduler's own resources are waited for: neither units nor a gate of ours.
    counted = client.kind != PODS
    gates = _gates(spec) if settings.gates and counted else {}
    records = [
        Record(asking.name, asking.request, asking.units, client.kind, client.package)
        for asking in request.containers
    ]
    given, init = _items(spec, "containers"), _items(spec, "initContainers")
    containers = list(given)
    volumes = volume_names(spec)
    for asking in request.containers:
        changed = _container(containers[asking.place], asking, request, volumes)
        if settings.hides_node_gpus and may_be_hidden(changed, _items(changed, "env")):
            changed["env"] = [*_items(changed, "env"), HIDDEN]
        containers[asking.place] = changed
    lines = _wrap_commands(spec, containers, request, annotations) if request.wraps else None
    first = request.containers[0]
    like = _like(given[first.place], init, first.units if counted else 0)
    init = with_init_containers(spec, init, records, client, settings, like, volumes, lines)
    return {
        **pod,
        "metadata": _metadata(pod, annotations, [volumes.client]),
        "spec": {
            **spec,
            "containers": containers,
            "initContainers": init,
            "volumes": with_volumes(_items(spec, "volumes"), records, settings, volumes),
            **gates,
            **({} if counted else near_gpus(spec, settings.near_gpus)),
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
    container: Mapping[str, Any], asking: AskingContainer, request: PodRequest, volumes: VolumeNames
) -> dict[str, Any]:
    mounts = client_mounts(container, request.client.kind, request.command_path, volumes)
    return {
        **container,
        "resources": _resources(container, "" if request.client.kind == PODS else str(asking.units)),
        "volumeMounts": with_mounts(_items(container, "volumeMounts"), mounts, volumes),
    }


def _wrap_commands(
    spec: Mapping[str, Any],
    containers: list[dict[str, Any]],
    request: PodRequest,
    annotations: Mapping[str, Any],
) -> dict[str, str]:
    """Put the commands of those that ask under the client; what is to be remembered of it, by their names."""
    management = annotations.get(ANNOTATION_MANAGEMENT)
    earlier_lines = wrapped_lines(spec)
    recorded = recorded_requests(spec) if earlier_lines else {}
    lines = {}
    for asking in request.containers:
        name, earlier = asking.name, None
        if name in earlier_lines and name in recorded:
            earlier = Earlier(recorded[name].request, earlier_lines[name])
        wrapping = wrapped_command(containers[asking.place], asking.request, management, earlier)
        if wrapping.fields:
            containers[asking.place] = {**containers[asking.place], **wrapping.fields}
        if wrapping.line is not None:
            lines[name] = wrapping.line
    return lines


def _like(container: Mapping[str, Any], init: Sequence[Mapping[str, Any]], units: int) -> Mapping[str, Any]:
    """The container that asks as ours are like it: with units only where a LimitRange has a default for them.

    It writes that into every container that says nothing, the one that asks before this pass and ours after
    it, and with more than is asked for the pod would count more. So ours say the default where it is less,
    0 where it is 0, and otherwise what is asked for: a LimitRange with a minimum or a ratio takes no 0.
    """
    ours = [each for each in init if each.get("name") == INIT_CONTAINER] if init else []
    told = ours[0] if ours else container
    default = [
        unit_count(given[RESOURCE_UNITS])
        for given in (limits_of(told), requests_of(told))
        if RESOURCE_UNITS in given
    ]
    if not default and not ours:
        return container
    resources = dict(_map(container, "resources"))
    for part in ("limits", "requests"):
        kept = {name: value for name, value in _map(resources, part).items() if name != RESOURCE_UNITS}
        if default:
            kept[RESOURCE_UNITS] = str(min(units, *default))
        resources[part] = kept
    return {**container, "resources": resources}


def _resources(container: Mapping[str, Any], units: str) -> dict[str, Any]:
    """Units in place of sizes. In the requests only where some were: Kubernetes adds what is missing.

    `units`: empty where nothing is counted; then units that a LimitRange has written become 0, since it would
    write them again.
    """
    resources = dict(_map(container, "resources"))
    for part in ("limits", "requests"):
        given = _map(resources, part)
        kept = {name: value for name, value in given.items() if not is_size_resource(name)}
        if RESOURCE_UNITS in kept or (units and (part == "limits" or len(kept) < len(given))):
            kept[RESOURCE_UNITS] = units or "0"
        if kept != given:
            resources[part] = kept
    return resources


def _metadata(pod: Pod, annotations: Mapping[str, Any], ours: Sequence[str]) -> dict[str, Any]:
    """`ours`: the names of the volumes that lie on the node."""
    metadata = _map(pod, "metadata")
    written = {name: value for name, value in annotations.items() if is_carried_annotation(name)}
    present = _map(metadata, "annotations")
    written[ANNOTATION_STATUS] = STATUS_INJECTED
    local = present.get(LOCAL_VOLUMES) or ""
    if isinstance(local, str):
        missing = [name for name in ours if name not in local.split(",")]
        written |= {LOCAL_VOLUMES: ",".join([*filter(None, [local]), *missing])} if missing else {}
    return {**metadata, "annotations": {**present, **written}}


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
