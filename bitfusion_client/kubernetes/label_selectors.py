"""Whom a label selector selects. Pure; for objects of any shape, as `raw_objects` reads them."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.kubernetes.raw_objects import RawObject


def selects(selector: object, labels: Mapping[str, object]) -> bool:
    """Whether ``matchLabels`` and ``matchExpressions`` hold; an empty selector selects all."""
    given = mapping(selector)
    if any(labels.get(key) != value for key, value in mapping(given.get("matchLabels")).items()):
        return False
    return all(_is_met(each, labels) for each in mappings(given.get("matchExpressions")))


def _is_met(expression: RawObject, labels: Mapping[str, object]) -> bool:
    key, values = text(expression.get("key")), expression.get("values")
    listed = values if isinstance(values, list) else []
    match expression.get("operator"):
        case "In":
            return labels.get(key) in listed
        case "NotIn":
            return labels.get(key) not in listed
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
