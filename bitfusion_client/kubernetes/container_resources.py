"""Where Bitfusion's resources may stand in a container: in its limits, and in its requests only the same.

Kubernetes refuses the pod of a container whose requests name such a resource alone, or in another amount, and
no node has one of another name: without a word in admission such a notebook would never run.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, WrongKey
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.keys import is_known_key, unknown_key
from bitfusion_client.kubernetes.names import (
    RESOURCE_AMOUNT,
    RESOURCE_MEMORY,
    RESOURCE_PERCENT,
    RESOURCE_UNITS,
    is_gpu_resource,
    is_size_resource,
)
from bitfusion_client.kubernetes.raw_objects import limits_of, requests_of
from bitfusion_client.kubernetes.rewritten_objects import quantity_meaning
from bitfusion_client.one_line import shown_value
from bitfusion_client.request.quantities import is_zero

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ONLY_IN_REQUESTS = "is in the requests but not in the limits, so no pod can be created"
MOVE_TO_LIMITS = "Put it in the limits; you can omit it from the requests."
LEAVE_OUT = "; leave it out of the requests"
PARTS = (RESOURCE_PERCENT, RESOURCE_MEMORY)  # of each of the GPUs that `RESOURCE_AMOUNT` counts


@dataclass(frozen=True, slots=True)
class GpuResources:
    """What is Bitfusion's in the limits and in the requests of one container, right or wrong, by name."""

    limits: dict[str, Any]
    requests: dict[str, Any]

    def __bool__(self) -> bool:
        return bool(self.limits or self.requests)

    def agrees(self, name: str) -> bool:
        """Whether a request repeats the limit of its name, or is none."""
        if name not in self.requests:
            return True
        limits, requests = self.limits, self.requests
        return name in limits and quantity_meaning(limits[name]) == quantity_meaning(requests[name])

    def first(self) -> tuple[str, object]:
        """A name and its value, for a message; of the limits if they have one."""
        return next(iter((self.limits or self.requests).items()))

    def meaning(self) -> tuple[dict[str, object], dict[str, object]]:
        """To compare two states: amounts by what they mean, since Kubeflow's culler spells them anew."""
        return _meaning(self.limits), _meaning(self.requests)


def gpu_resources(container: Mapping[str, object]) -> GpuResources:
    """What is Bitfusion's in a raw container of any shape. No units are none: nothing is asked by them."""
    return GpuResources(_ours(limits_of(container)), _ours(requests_of(container)))


def gpu_resources_of_pod(container: Mapping[str, object]) -> GpuResources:
    """The same for a container of a pod, where 0 of any size is none, too, and units are nobody's request.

    A LimitRange writes its defaults into every container that says nothing, and an earlier pass of the
    injector has written units. In a Notebook 0 of a size is a person's slip, and is told.
    """
    found = gpu_resources(container)
    limits, requests = found.limits, found.requests
    if RESOURCE_UNITS in limits or RESOURCE_UNITS in requests:
        odd = True
    else:
        odd = any(map(is_zero, limits.values())) or any(map(is_zero, requests.values()))
    return GpuResources(_above_zero(limits), _above_zero(requests)) if odd else found


def check_resources(resources: GpuResources, overridden: bool = False) -> None:
    """Raise WrongKey or InvalidRequest for a resource that no pod could ever be given.

    Called for every Notebook that has one. What the sizes in the limits say is left to `sizes`,
    and, where an annotation overrides them (`overridden`), to nobody: an injector takes them all away.
    """
    limits, requests = resources.limits, resources.requests
    for name, value in {**requests, **limits}.items():
        if not is_known_key(name) and not (overridden and is_size_resource(name)):
            raise unknown_key(name, value)
    for name, value in requests.items():
        if name not in limits:
            raise WrongKey(name, value, ONLY_IN_REQUESTS, MOVE_TO_LIMITS)
        if not resources.agrees(name):
            allowed = f'must be what the limits have, "{shown_value(limits[name])}"{LEAVE_OUT}'
            raise InvalidRequest(name, value, allowed, f"{name} in the requests")


def _ours(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: resources[name]
        for name in sorted(filter(is_gpu_resource, resources))
        if name != RESOURCE_UNITS or not is_zero(resources[name])
    }


def _above_zero(given: dict[str, Any]) -> dict[str, Any]:
    asked = {
        name: value
        for name, value in given.items()
        if name != RESOURCE_UNITS and (name in PARTS or not is_zero(value))
    }
    # a part of no GPU is none; 0 % of one is wrong
    if RESOURCE_AMOUNT not in asked and (RESOURCE_AMOUNT in given or all(map(is_zero, asked.values()))):
        return {name: value for name, value in asked.items() if name not in PARTS}
    return asked


def _meaning(resources: Mapping[str, object]) -> dict[str, object]:
    return {name: quantity_meaning(value) for name, value in resources.items()}
