"""What a pod asks for: which of its containers, how much each, and which client.

The sizes are in the containers' limits. The annotation ``bitfusion.io/request`` stands in place of those of
one container, see `_overridden`. All of it is read by the one parser of `bitfusion_client`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes.client_images import client_for_image
from bitfusion_client.kubernetes.container_resources import (
    GpuResources,
    check_resources,
    gpu_resources_of_pod,
)
from bitfusion_client.kubernetes.keys import unknown_key
from bitfusion_client.kubernetes.names import (
    ANNOTATION_CLIENT_OS,
    ANNOTATION_CLIENT_VERSION,
    ANNOTATION_FILTER,
    ANNOTATION_MANAGEMENT,
    ANNOTATION_REQUEST,
    RESOURCE_UNITS,
)
from bitfusion_client.kubernetes.raw_objects import (
    init_containers_of,
    labels_of,
    limits_of,
    mapping,
    requests_of,
    text,
)
from bitfusion_client.kubernetes.request import is_overridden, request_from_kubernetes
from bitfusion_client.kubernetes.sizes import units
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import LABEL_NOTEBOOK, PODS
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import is_zero
from bitfusion_device_plugin.injector.injection.client_map import ClientRule, client_for
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_annotations import (
    Management,
    management_of,
    wants_command_path,
)
from bitfusion_device_plugin.injector.injection.recorded_requests import (
    MOST_ASKING,
    Recorded,
    recorded_requests,
)

LONGEST_NAME = 63  # characters of a container's name

NO_INIT_CONTAINER = "init containers, including sidecars, cannot have GPUs"
OWN_CONTAINER = "Set the size on the container that computes."
SEVERAL_ASK = "replaces the size of one container, but several containers request GPUs"
SIZES_IN_LIMITS = "Remove the annotation and write each size in the limits of its container."
GPU_MEMORY_UNKNOWN = "requests memory, but how much memory a GPU of this cluster's pool has is not known"
ASK_FOR_SHARE = (
    "Request a share instead (bitfusion.io/gpu-50: 1 is half a GPU), or ask your administrator to set the "
    "injector's --gpu-memory."
)
AT_MOST = f"at most {MOST_ASKING} of a pod can"
FEWER = "Set sizes on fewer containers, or create another pod for them."
ASK_FOR_LESS = "Request less of each GPU, or more GPUs."

# As the API has it, which refuses a pod with another name in it. The name becomes a part of paths.
_is_name = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?").fullmatch


@dataclass(frozen=True, slots=True)
class AskingContainer:
    """A container that asks, its place among the pod's containers, what it gets and counts for.

    Of the kind `PODS` it counts for nothing: its units are for its own files, 0 for a size by memory.
    """

    place: int
    name: str
    request: GpuRequest
    units: int


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a pod asks for.

    Attributes:
        containers: Those that ask, in the pod's order; never empty.
        wraps: Whether their commands are to run with the GPUs.
        command_path: Whether the command is to lie in ``/usr/local/bin``.
        client: What they get.
    """

    containers: tuple[AskingContainer, ...]
    wraps: bool
    command_path: bool
    client: ClientRule


def pod_request(
    pod: Mapping[str, Any], annotations: Mapping[str, Any], settings: InjectorSettings
) -> PodRequest | None:
    """What the pod asks for; None if nothing, or if it is to be left alone.

    Args:
        pod: As it is sent for admission, for the first or another time; of any shape.
        annotations: Those that hold for it, see `effective_annotations`.
        settings: The administrator's.

    Raises:
        InvalidRequest: What it asks for cannot be.
    """
    spec = mapping(pod.get("spec"))
    listed = spec.get("containers")
    containers = [mapping(item) for item in listed] if isinstance(listed, list) else []
    sizes = [gpu_resources_of_pod(container) for container in containers]
    init_sizes = [(container, gpu_resources_of_pod(container)) for container in init_containers_of(spec)]
    recorded = recorded_requests(spec)
    asking = [
        place
        for place, container in enumerate(containers)
        if sizes[place] or _is_recorded(container, recorded)
    ]
    replaced = is_overridden(annotations)
    if not asking and not replaced and not any(found for _, found in init_sizes):
        _refuse_units_alone(containers, annotations)
        return None
    management = management_of(annotations)
    if management is Management.NONE:
        return None
    for container, found in init_sizes:
        if found:
            key, value = found.first()
            problem = f'is requested by init container "{_shown_name(container)}"; {NO_INIT_CONTAINER}'
            raise WrongKey(key, value, problem, OWN_CONTAINER)
    notebook = text(labels_of(pod).get(LABEL_NOTEBOOK))
    target = _overridden(containers, asking, annotations, notebook) if replaced else -1
    asking = sorted({*asking, target} - {-1})
    if len(asking) > MOST_ASKING:
        key, value = next((found.first() for found in sizes if found), (ANNOTATION_REQUEST, ""))
        raise WrongKey(key, value, f"is requested by {len(asking)} containers; {AT_MOST}", FEWER)
    if not asking or not all(_is_name(text(containers[place].get("name"))) for place in asking):
        return None
    client = _client(containers, asking, annotations, notebook, settings)
    units_of = _no_units if client.kind == PODS else partial(_units, gpu_memory_mib=settings.gpu_memory_mib)
    found_containers = tuple(
        _asking_container(
            place, containers[place], sizes[place], place == target, annotations, recorded, units_of
        )
        for place in asking
    )
    return PodRequest(found_containers, management is Management.ALL, wants_command_path(annotations), client)


def _is_recorded(container: Mapping[str, Any], recorded: Mapping[str, Recorded]) -> bool:
    """Whether a container asks of which an earlier pass has taken the sizes.

    One that has no units any more, which somebody else has taken out, asks for nothing; of the kind `PODS`
    none has any.
    """
    found = recorded.get(text(container.get("name")))
    if found is None:
        return False
    return (
        found.kind == PODS
        or RESOURCE_UNITS in limits_of(container)
        or RESOURCE_UNITS in requests_of(container)
    )


def _refuse_units_alone(containers: Sequence[Mapping[str, Any]], annotations: Mapping[str, Any]) -> None:
    """Who writes units wants a client if the annotation says so, and no size can be read from them."""
    if annotations.get(ANNOTATION_MANAGEMENT) is None:
        return
    for container in containers:
        limits = limits_of(container)
        if not is_zero(limits.get(RESOURCE_UNITS, 0)) and management_of(annotations) is not Management.NONE:
            raise unknown_key(RESOURCE_UNITS, limits[RESOURCE_UNITS])


def _overridden(
    containers: Sequence[Mapping[str, Any]],
    asking: Sequence[int],
    annotations: Mapping[str, Any],
    notebook: str,
) -> int:
    """The place of the container whose size the annotation of a request replaces, -1 if there is none.

    The one that asks; if several do, or none, the notebook's own; in a pod that is no notebook's the first.

    Raises WrongKey: several ask, and none is the notebook's.
    """
    if len(asking) == 1:
        return asking[0]
    own = _notebooks_own(containers, asking or range(len(containers)), notebook)
    if own >= 0:
        return own
    if asking:
        value = annotations[ANNOTATION_REQUEST]
        raise WrongKey(ANNOTATION_REQUEST, value, SEVERAL_ASK, SIZES_IN_LIMITS)
    return 0 if containers else -1


def _asking_container(
    place: int,
    container: Mapping[str, Any],
    sizes: GpuResources,
    is_overridden_one: bool,
    annotations: Mapping[str, Any],
    recorded: Mapping[str, Recorded],
    units_of: Callable[[GpuRequest, str, object], int],
) -> AskingContainer:
    name = text(container.get("name"))
    notes = {key: annotations[key] for key in (ANNOTATION_FILTER,) if key in annotations}
    key, value = sizes.first() if sizes else (ANNOTATION_REQUEST, "")
    if is_overridden_one:
        check_resources(sizes, overridden=True)
        key, value = ANNOTATION_REQUEST, annotations[ANNOTATION_REQUEST]
        request = request_from_kubernetes(None, {**notes, key: value})
    elif sizes:
        check_resources(sizes)
        request = request_from_kubernetes(sizes.limits, notes)
    else:
        request = recorded[name].request
    assert request is not None  # there is a size, an annotation or a record
    return AskingContainer(place, name, request, units_of(request, key, value))


def _units(request: GpuRequest, key: str, value: object, gpu_memory_mib: int | None) -> int:
    if request.memory_mib is not None:
        if gpu_memory_mib is None:
            raise WrongKey(key, value, GPU_MEMORY_UNKNOWN, ASK_FOR_SHARE)
        if request.memory_mib > gpu_memory_mib:
            asked = f"requests {request.memory_mib} MiB of each GPU"
            problem = f"{asked}, but a GPU of the pool has {gpu_memory_mib} MiB"
            raise WrongKey(key, value, problem, ASK_FOR_LESS)
    return units(request, gpu_memory_mib)


def _no_units(request: GpuRequest, key: str, value: object) -> int:
    """Of the kind `PODS`: nothing of a pool is taken, and how large its GPUs are nobody need say."""
    return 0 if request.memory_mib is not None else units(request, None)


def _client(
    containers: Sequence[Mapping[str, Any]],
    asking: Sequence[int],
    annotations: Mapping[str, Any],
    notebook: str,
    settings: InjectorSettings,
) -> ClientRule:
    """The client that the annotations name, else the one for the image of the notebook, or of the first."""
    os = text(annotations.get(ANNOTATION_CLIENT_OS))
    version = text(annotations.get(ANNOTATION_CLIENT_VERSION))
    if not (os and version):
        own = _notebooks_own(containers, asking, notebook)
        chosen = client_for_image(containers[own if own >= 0 else asking[0]].get("image"), settings.images)
        os, version = os or chosen.client_os, version or chosen.client_version
    return client_for(os, version, settings.clients)


def _notebooks_own(containers: Sequence[Mapping[str, Any]], places: Iterable[int], notebook: str) -> int:
    """Which of these places has the notebook's own container, the one with its name; -1 if none has."""
    own = (place for place in places if notebook and containers[place].get("name") == notebook)
    return next(own, -1)


def _shown_name(container: Mapping[str, Any]) -> str:
    return one_line(container.get("name") or "", LONGEST_NAME)
