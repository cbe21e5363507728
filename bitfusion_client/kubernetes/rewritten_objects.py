"""Compares two states of a raw object that different programs wrote: what they mean, not how they spell it.

Go programs such as Kubeflow's culler read an object into types and PUT all of it: ``1`` comes back
as ``"1"``, ``0.5`` as ``500m``, ``1024Mi`` as ``1Gi``, and what was absent may come back empty.
"""

from __future__ import annotations

from math import gcd

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

# Fields of a pod's spec that hold quantities, or maps of them.
QUANTITIES = ("limits", "requests", "sizeLimit", "divisor")


def same_meaning(old: object, new: object) -> bool:
    """Whether two states of a pod's spec, or of a part of it, differ in their spelling only."""
    return old == new or _meaning(old) == _meaning(new)


def quantity_meaning(value: object) -> object:
    """The same for each spelling of one amount; what is no quantity stays as it is."""
    try:
        numerator, denominator = parse_quantity(value)
    except ValueError:
        return value
    divisor = gcd(numerator, denominator)
    return numerator // divisor, denominator // divisor


def _meaning(value: object, is_quantity: bool = False) -> object:
    if isinstance(value, dict):
        return _of_map(value, is_quantity)
    if isinstance(value, list):
        return [_meaning(item) for item in value]
    return quantity_meaning(value) if is_quantity else value


def _of_map(value: Mapping[str, object], are_quantities: bool) -> dict[str, object]:
    found = {name: _meaning(item, are_quantities or name in QUANTITIES) for name, item in value.items()}
    return {name: item for name, item in found.items() if item not in (None, "", {}, [])}
