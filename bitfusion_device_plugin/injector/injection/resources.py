"""The resources of our init containers: those of a container that asks, and never more.

A pod weighs what its largest init container wants, or all its containers together, whichever is more, for as
long as it runs. So one of ours that is larger than the container would cost for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.kubernetes.raw_objects import mapping
from bitfusion_client.request.quantities import parse_quantity

COPIED_RESOURCES = ("cpu", "memory", "ephemeral-storage", RESOURCE_UNITS)
PARTS = ("limits", "requests")


def at_most(present: object, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """The resources of an init container where those of the container that asks have changed since.

    Args:
        present: As the init container has them now; of any shape.
        wanted: What it would have if it were made now.

    Returns:
        `present` where it is not more. A resource that is missing in it is taken from `wanted`: a quota
        refuses a container that does not say. A copied one that `wanted` has no more is left out; others
        stay.
    """
    resources = mapping(present)
    if resources == wanted:
        return resources
    result = dict(resources)
    for part in PARTS:
        given, most = mapping(resources.get(part)), mapping(wanted.get(part))
        kept = {name: value for name, value in given.items() if name not in COPIED_RESOURCES or name in most}
        for name, value in most.items():
            if name not in kept or not _is_at_most(kept[name], value):
                kept[name] = value
        if kept:
            result[part] = kept
        elif part in result:
            del result[part]
    return result


def _is_at_most(value: object, most: object) -> bool:
    try:
        (top, bottom), (most_top, most_bottom) = parse_quantity(value), parse_quantity(most)
    except ValueError:
        return False
    return top * most_bottom <= most_top * bottom
