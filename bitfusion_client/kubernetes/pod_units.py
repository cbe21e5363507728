"""How many units of the pool a pod counts, as Kubernetes' scheduler counts them.

For everything that adds up what pods take of the pool. A pod is read as it came from the API server; in any
other shape a part counts nothing, and nothing here raises.

The formula is that of the scheduler (k8s.io/component-helpers, resource/helpers.go, `PodRequests`):
containers run together, init containers one after the other, and an init container that restarts (a sidecar,
Kubernetes 1.28) runs beside all that come after it.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.kubernetes.raw_objects import (
    containers_of,
    init_containers_of,
    limits_of,
    mapping,
    requests_of,
)
from bitfusion_client.request.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LARGEST_COUNT = (1 << 63) - 1
"""Kubernetes' own bound of a quantity: larger ones are this."""


def units_of(pod: Mapping[str, Any]) -> int:
    """The units of ``bitfusion.io/gpu`` that a raw pod counts once it is bound to a node; 0 if none."""
    spec = mapping(pod.get("spec"))
    running = sum(map(_container_units, containers_of(spec)))
    sidecars = starting = 0
    for container in init_containers_of(spec):
        units = _container_units(container)
        if container.get("restartPolicy") == "Always":
            sidecars += units
            starting = max(starting, sidecars)
        else:
            starting = max(starting, sidecars + units)
    overhead = unit_count(mapping(spec.get("overhead")).get(RESOURCE_UNITS))
    return min(max(running + sidecars, starting) + overhead, LARGEST_COUNT)


def unit_count(value: object) -> int:
    """The whole number that a quantity such as ``50``, ``"5k"`` or ``"1e3"`` stands for.

    Parts of a unit count as one, as the scheduler rounds; what is no quantity, or below 0, counts 0.
    """
    try:
        numerator, denominator = parse_quantity(value)
    except ValueError:
        return 0
    return min(max(-(-numerator // denominator), 0), LARGEST_COUNT)


def _container_units(container: Mapping[str, Any]) -> int:
    # The API server writes a limit into requests that leave it out; a pod in admission may not have it yet.
    requests = requests_of(container)
    chosen = requests if RESOURCE_UNITS in requests else limits_of(container)
    return unit_count(chosen.get(RESOURCE_UNITS))
