"""What a Kubeflow Notebook asks of Bitfusion: its request, the container that asks, whether it is left alone.

Admission, the reconciler and the form's hook call it with raw objects, which may have any shape; see
`raw_objects`. Nothing is changed in place.
"""

from __future__ import annotations

from bitfusion_client.errors import WrongKey
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.container_resources import GpuResources, check_resources, gpu_resources
from bitfusion_client.kubernetes.names import ADMISSION_IGNORE, LABEL_ADMISSION
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    asks_for_gpus,
    containers_of,
    init_containers_of,
    limits_of,
    mapping,
    metadata_of,
    pod_spec_of,
)
from bitfusion_client.kubernetes.request import is_overridden, request_from_kubernetes
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bitfusion_client.request.gpu_request import GpuRequest

LONGEST_NAME = 63  # characters of a container's name

ONE_CONTAINER = "only one container of a notebook can"
ONE_KEEPS = "Keep the size on the notebook's own container and remove it from the others."
NO_INIT_CONTAINER = "only the notebook's own container can have GPUs"
OWN_CONTAINER = "Set the size there."


def notebook_request(notebook: Mapping[str, object]) -> GpuRequest | None:
    """What the Notebook asks for, in its limits or in the annotation that overrides them; None if nothing.

    Raises:
        InvalidRequest: A size that cannot be, or that stands where it cannot; GPUs for an init container, or
            two containers that ask.
    """
    return request_from_kubernetes(limits_that_ask(notebook), annotations_of(notebook))


def limits_that_ask(notebook: Mapping[str, object]) -> Mapping[str, object] | None:
    """The limits of the container that asks, None without one; what its sizes say is not looked at.

    Raises:
        InvalidRequest: As `notebook_request` does, but for the sizes.
    """
    pod = pod_spec_of(notebook)
    for container, resources in _with_resources(init_containers_of(pod)):
        asked = f'is requested by init container "{_name_of(container)}"; {NO_INIT_CONTAINER}'
        raise WrongKey(*resources.first(), asked, OWN_CONTAINER)
    found = _with_resources(containers_of(pod))
    if not found:
        return None
    (own, resources), *others = found
    for container, its in others:
        asked = (
            f'is requested by container "{_name_of(container)}", but "{_name_of(own)}" also requests GPUs; '
            f"{ONE_CONTAINER}"
        )
        raise WrongKey(*its.first(), asked, ONE_KEEPS)
    check_resources(resources, is_overridden(annotations_of(notebook)))
    return limits_of(own)


def notebook_image(notebook: Mapping[str, object]) -> object:
    """The image of the container that asks, else of the notebook's own container.

    That is the one with the Notebook's name; the first, if there is none.
    """
    containers = containers_of(pod_spec_of(notebook))
    for container in containers:
        if asks_for_gpus(container):
            return container.get("image")
    name = metadata_of(notebook).get("name")
    for container in containers:
        if isinstance(name, str) and container.get("name") == name:
            return container.get("image")
    return containers[0].get("image") if containers else None


def has_size(notebook: Mapping[str, object]) -> bool:
    """Whether a container's limits name a Bitfusion size, right or wrong."""
    return any(asks_for_gpus(container) for container in containers_of(pod_spec_of(notebook)))


def is_left_alone(labels: Mapping[str, object] | None) -> bool:
    """Whether an object's labels say ``bitfusion.io/admission: ignore``: it is never changed or refused.

    The webhooks' selectors say so too, but an edit is sent if the object before or after it is selected.
    """
    return bool(labels) and mapping(labels).get(LABEL_ADMISSION) == ADMISSION_IGNORE


def resources_of_notebook(
    notebook: Mapping[str, object],
) -> tuple[list[GpuResources], list[GpuResources]]:
    """What is Bitfusion's in the containers that have any of it, and in such init containers."""
    pod = pod_spec_of(notebook)
    own, init = map(_with_resources, (containers_of(pod), init_containers_of(pod)))
    return [resources for _, resources in own], [resources for _, resources in init]


def _with_resources(
    containers: Iterable[Mapping[str, object]],
) -> list[tuple[Mapping[str, object], GpuResources]]:
    """Those of the containers that have anything of Bitfusion's, and what."""
    found = ((container, gpu_resources(container)) for container in containers)
    return [(container, resources) for container, resources in found if resources]


def _name_of(container: Mapping[str, object]) -> str:
    return one_line(container.get("name") or "", LONGEST_NAME)
