"""CPU and memory of the program's container: the notebook's, or by the admin's rule for each GPU. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_pods.fragments import PLAIN_RESOURCES
from bitfusion_client.kubernetes.raw_objects import limits_of, requests_of
from bitfusion_client.request.quantities import MIB, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_client.gpu_pods.settings import PodSettings

PARTS = ("limits", "requests")


def program_resources(
    container: Mapping[str, Any], settings: PodSettings, gpus: int, rule: Mapping[str, Any]
) -> dict[str, Any]:
    """``resources`` of the program's container.

    Args:
        container: The notebook's.
        settings: Amounts for each GPU, requested and allowed alike.
        gpus: How many GPUs the pod has; a share of one counts as one.
        rule: ``resources`` in the fragment of the size's rule, which wins: a resource that it names is the
            notebook's in neither part.
    """
    named = {name for part in PARTS for name in rule.get(part, {})}
    each = {"cpu": settings.cpu, "memory": settings.memory}
    result: dict[str, Any] = {}
    for part, own in (("limits", limits_of(container)), ("requests", requests_of(container))):
        amounts: dict[str, Any] = {}
        for name in PLAIN_RESOURCES:
            if name in named:
                continue
            if each.get(name):
                amounts[name] = times(each[name], gpus)
            elif isinstance(own.get(name), (str, int, float)):
                amounts[name] = own[name]
        amounts.update(rule.get(part, {}))
        if amounts:
            result[part] = amounts
    if rule.get("claims"):
        result["claims"] = rule["claims"]
    return result


def times(quantity: str, number: int) -> str:
    """An amount so many times: whole numbers, MiB or thousandths, rounded up to the next thousandth."""
    above, below = parse_quantity(quantity)
    above *= number
    if above % below == 0:
        amount = above // below
        return f"{amount // MIB}Mi" if amount and amount % MIB == 0 else str(amount)
    return f"{-(-above * 1000 // below)}m"
