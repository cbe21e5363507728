"""Fragments of a pod in an admin's settings: what may stand in one, and how numbers are put into it. Pure.

A fragment looks like the part of a pod that it becomes::

    pod:
      metadata:
        annotations: {gpu-fraction: "{share}"}
      spec:
        schedulerName: kai-scheduler
    container:
      resources:
        limits: {nvidia.com/gpu: "{gpus}"}

A value that is exactly ``{gpus}``, ``{percent}``, ``{memory_mib}`` or ``{share}`` becomes a number, as text.
Nothing is ever put into a longer text or into a name, and no other braces are taken. What would make another
pod of it, another name, container, program or owner, is not a field of a fragment.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_pods.values import (
    LONGEST_KEY,
    LONGEST_VALUE,
    Place,
    fields,
    items,
    line,
)
from bitfusion_client.kubernetes.names import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Fragment = dict[str, Any]

GPUS, PERCENT, MEMORY_MIB, SHARE = "{gpus}", "{percent}", "{memory_mib}", "{share}"
PLACEHOLDERS = (GPUS, PERCENT, MEMORY_MIB, SHARE)

MOST_ITEMS = 32  # of a list, and fields of an object
MOST_VALUES = 400  # of one fragment
DEEPEST = 12

POD_FIELDS = ("metadata", "spec")
METADATA_FIELDS = ("labels", "annotations")
SPEC_TEXTS = ("schedulerName", "runtimeClassName", "priorityClassName", "preemptionPolicy")
SPEC_LISTS = ("tolerations", "resourceClaims", "schedulingGates")
SPEC_FIELDS = ("nodeSelector", "affinity", *SPEC_TEXTS, *SPEC_LISTS)
CONTAINER_FIELDS = ("resources", "env")
RESOURCES_FIELDS = ("limits", "requests", "claims")
VARIABLE_FIELDS = ("name", "value")

# By these a Service and the controllers of a notebook find its pod; the last one is written by us.
RESERVED_LABELS = (
    "notebook-name",
    "statefulset",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "sidecar.istio.io/inject",
)
PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage")
OWN_VARIABLES = "BITFUSION_"

RESERVED = "is set by this program; leave it out"
ALLOWED_TEXT = "must be text; put it in quotes"
ALLOWED_BRACES = f"must not contain braces, unless the whole value is one of {', '.join(PLACEHOLDERS)}"
NO_NUMBERS_HERE = "must not contain braces: it applies to all GPU pods, whatever their size"
TOO_MUCH = f"is too large: a fragment has at most {MOST_VALUES} values, {DEEPEST} levels deep"
ALLOWED_AFFINITY = "may contain only nodeAffinity"


def parse_pod_fragment(value: object, place: Place, numbers: bool = True) -> Fragment:
    """What is added to a pod. `numbers`: whether placeholders may stand in it. Raises WrongSetting."""
    _check_tree(value, place, numbers)
    pod = fields(value, place, POD_FIELDS)
    metadata = fields(pod.get("metadata"), place.field("metadata"), METADATA_FIELDS)
    spec = fields(pod.get("spec"), place.field("spec"), SPEC_FIELDS)
    result: Fragment = {}
    for name in METADATA_FIELDS:
        texts = _texts(metadata.get(name), place.field("metadata").field(name))
        for key in texts:
            if key.startswith(GROUP) or key in RESERVED_LABELS:
                raise place.field("metadata").field(name).field(key).wrong(texts[key], RESERVED)
        if texts:
            result.setdefault("metadata", {})[name] = texts
    where = place.field("spec")
    parts: Fragment = {name: line(spec[name], where.field(name)) for name in SPEC_TEXTS if name in spec}
    for name in SPEC_LISTS:
        objects = _objects(spec.get(name), where.field(name))
        if objects:
            parts[name] = objects
    selector = _texts(spec.get("nodeSelector"), where.field("nodeSelector"))
    if selector:
        parts["nodeSelector"] = selector
    affinity = spec.get("affinity")
    if affinity is not None:
        if not isinstance(affinity, dict) or set(affinity) != {"nodeAffinity"}:
            raise where.field("affinity").wrong(affinity, ALLOWED_AFFINITY)
        parts["affinity"] = _copy(affinity)
    if parts:
        result["spec"] = parts
    return result


def parse_container_fragment(value: object, place: Place) -> Fragment:
    """What is added to the program's container. Raises WrongSetting."""
    _check_tree(value, place, True)
    given = fields(value, place, CONTAINER_FIELDS)
    where = place.field("resources")
    resources = fields(given.get("resources"), where, RESOURCES_FIELDS)
    parts: Fragment = {}
    for name in ("limits", "requests"):
        amounts = _amounts(resources.get(name), where.field(name))
        if amounts:
            parts[name] = amounts
    claims = _objects(resources.get("claims"), where.field("claims"))
    if claims:
        parts["claims"] = claims
    result: Fragment = {"resources": parts} if parts else {}
    variables = []
    for index, each in enumerate(items(given.get("env"), place.field("env"), MOST_ITEMS, "variables")):
        spot = place.field("env").item(index)
        variable = fields(each, spot, VARIABLE_FIELDS)
        variable_name = line(variable.get("name"), spot.field("name"), LONGEST_KEY)
        if variable_name.startswith(OWN_VARIABLES):
            raise spot.field("name").wrong(variable_name, RESERVED)
        text = variable.get("value", "")
        if not isinstance(text, str):
            raise spot.field("value").wrong(text, ALLOWED_TEXT)
        variables.append({"name": variable_name, "value": text})
    if variables:
        result["env"] = variables
    return result


def placeholders_in(fragment: object) -> set[str]:
    """Which numbers are to be put into it."""
    return {value for value in _leaves(fragment) if value in PLACEHOLDERS}


def filled(fragment: Fragment, numbers: Mapping[str, str]) -> Fragment:
    """The fragment with numbers, by placeholder, in the places of their names; nothing is shared with it."""
    result: Fragment = _filled(fragment, numbers)
    return result


def extended_resources(container: Mapping[str, Any]) -> tuple[str, ...]:
    """The resources in a container's fragment that are neither CPU nor memory, in their order."""
    parts = container.get("resources", {})
    names = [*parts.get("limits", {}), *parts.get("requests", {})]
    return tuple(dict.fromkeys(name for name in names if name not in PLAIN_RESOURCES))


def _texts(value: object, place: Place) -> dict[str, str]:
    result = {}
    for key, each in _pairs(value, place):
        if not isinstance(each, str):
            raise place.field(key).wrong(each, ALLOWED_TEXT)
        result[key] = each
    return result


def _amounts(value: object, place: Place) -> dict[str, str]:
    result = {}
    for key, each in _pairs(value, place):
        if key.startswith(GROUP):
            raise place.field(key).wrong(each, RESERVED)
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise place.field(key).wrong(each, "must be an amount")
        result[key] = str(each)
    return result


def _pairs(value: object, place: Place) -> list[tuple[str, object]]:
    if value is None:
        return []
    if not isinstance(value, dict):
        raise place.wrong(value, "must have names, each with a value")
    return list(value.items())


def _objects(value: object, place: Place) -> list[Any]:
    found = items(value, place, MOST_ITEMS, "items")
    for index, each in enumerate(found):
        if not isinstance(each, dict):
            raise place.item(index).wrong(each, "must have fields, each with a value")
    return [_copy(each) for each in found]


def _check_tree(value: object, place: Place, numbers: bool) -> None:
    """Bounds, plain values, and braces, before anything else is looked at."""
    left = MOST_VALUES
    waiting = [(value, place, 0)]
    while waiting:
        each, where, depth = waiting.pop()
        left -= 1
        if left < 0 or depth > DEEPEST:
            raise place.wrong("…", TOO_MUCH)
        if isinstance(each, dict):
            if len(each) > MOST_VALUES:
                raise place.wrong("…", TOO_MUCH)
            for key, inner in each.items():
                if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
                    raise where.wrong(key, f"has a name that is not text of 1 to {LONGEST_KEY} characters")
                if set(key) & {"{", "}"}:
                    raise where.wrong(key, "has a name with braces, which are allowed only in values")
                waiting.append((inner, where.field(key), depth + 1))
        elif isinstance(each, (list, tuple)):
            if len(each) > MOST_ITEMS:
                raise where.wrong("…", f"must be a list of at most {MOST_ITEMS} items")
            waiting += [(inner, where.item(index), depth + 1) for index, inner in enumerate(each)]
        elif isinstance(each, str):
            _check_text(each, where, numbers)
        elif each is not None and (not isinstance(each, (bool, int, float)) or not _is_small(each)):
            raise where.wrong(each, "must be text, a number, true or false")


def _check_text(text: str, place: Place, numbers: bool) -> None:
    if len(text) > LONGEST_VALUE or not text.isprintable():
        raise place.wrong(text, f"must be one line of text, at most {LONGEST_VALUE} characters")
    if set(text) & {"{", "}"} and (not numbers or text not in PLACEHOLDERS):
        raise place.wrong(text, ALLOWED_BRACES if numbers else NO_NUMBERS_HERE)


def _is_small(number: float) -> bool:
    return -1e18 < number < 1e18  # neither infinite nor of digits without end


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield value


def _filled(value: Any, numbers: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, numbers) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(each, numbers) for each in value]
    return numbers.get(value, value) if isinstance(value, str) else value


def _copy(value: Any) -> Any:
    return _filled(value, {})
