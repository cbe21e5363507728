"""What a Kubeflow Notebook asks of Bitfusion: its request, the container that asks, whether it is left alone.

Admission, the reconciler and the form's hook call it with raw objects, which may have any shape; see
`raw_objects`. Nothing is changed in place.
"""

from __future__ import annotations

from bitfusion_client.carried_annotations import carried_annotations
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes_names import ADMISSION_IGNORE, LABEL_ADMISSION
from bitfusion_client.kubernetes_request import request_from_kubernetes
from bitfusion_client.one_line import one_line
from bitfusion_client.raw_objects import (
    annotations_of,
    asks_for_gpus,
    containers_of,
    init_containers_of,
    limits_of,
    mapping,
    metadata_of,
    pod_spec_of,
    size_limits_of,
)
from bitfusion_client.rewritten_objects import quantity_meaning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.request import GpuRequest

LONGEST_NAME = 63  # characters of a container's name

ALLOWED_CONTAINER = "an init container cannot ask for GPUs, only the notebook's can"


def notebook_request(notebook: Mapping[str, object]) -> GpuRequest | None:
    """What the Notebook asks for, in its limits or in the annotation that overrides them; None if nothing.

    Raises:
        InvalidRequest: A size that cannot be, GPUs for an init container, or two containers that ask.
    """
    pod = pod_spec_of(notebook)
    for container in init_containers_of(pod):
        for key in size_limits_of(container):
            raise _refused(container, key, ALLOWED_CONTAINER)
    asking = [container for container in containers_of(pod) if asks_for_gpus(container)]
    if len(asking) > 1:
        first, second = asking[0], asking[1]
        key = next(iter(size_limits_of(second)))
        raise _refused(
            second, key, f'only one container may ask for GPUs; container "{_name_of(first)}" does too'
        )
    limits = limits_of(asking[0]) if asking else None
    return request_from_kubernetes(limits, annotations_of(notebook))


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


def bitfusion_part(notebook: Mapping[str, object]) -> tuple[object, ...]:
    """Everything of a Notebook that is about Bitfusion, to compare two states of it with ``==``.

    Admission calls it to let a Notebook that is wrong already be edited elsewhere. Amounts compare by what
    they mean: Kubeflow's culler spells them anew.
    """
    pod = pod_spec_of(notebook)
    annotations = carried_annotations(annotations_of(notebook))
    return annotations, _asked(containers_of(pod)), _asked(init_containers_of(pod))


def _asked(containers: Sequence[Mapping[str, object]]) -> list[tuple[object, dict[str, object]]]:
    return [
        (
            container.get("name"),
            {key: quantity_meaning(amount) for key, amount in size_limits_of(container).items()},
        )
        for container in containers
        if asks_for_gpus(container)
    ]


def _refused(container: Mapping[str, object], key: str, allowed: str) -> InvalidRequest:
    spelled = f'{key} of container "{_name_of(container)}"'
    return InvalidRequest(key, size_limits_of(container)[key], allowed, spelled)


def _name_of(container: Mapping[str, object]) -> str:
    return one_line(container.get("name") or "", LONGEST_NAME)
