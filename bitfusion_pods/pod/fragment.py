"""The admin's fragments put into a pod, and the node to which it is bound. Pure; changes the pod it is given.

Objects are merged by their names, lists are made longer, of all else the later one wins; node affinities must
all hold, though Kubernetes takes any one term of a list. Which fields a
fragment may have was checked where it was read (`bitfusion_client/gpu_pods/fragments.py`).
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.pod.cannot_copy import copy_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NODE_NAME = "metadata.name"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS, PARTS = "nodeSelectorTerms", ("matchExpressions", "matchFields")


def put_fragment(target: dict[str, Any], fragment: Mapping[str, Any]) -> None:
    """Merge a fragment into a pod or a part of it."""
    for name, value in fragment.items():
        present = target.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            put_fragment(present, value)
        elif name == TERMS and _terms(present) and _terms(value):
            target[name] = [_both(one, other) for one in _terms(present) for other in _terms(value)]
        elif isinstance(present, list) and isinstance(value, list):
            present += [copy_of(each) for each in value if each not in present]
        else:
            target[name] = copy_of(value)


def bind_to_node(spec: dict[str, Any], node: str) -> None:
    """Let the pod run on this node only, beside all that its affinity says already.

    By the node's name, not by its label ``kubernetes.io/hostname``, which may be another. ``nodeName`` would
    pass the scheduler over, and with it GPUs that are taken.
    """
    here = {"key": NODE_NAME, "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    present = affinity.get(REQUIRED)
    terms, bound = _terms(present.get(TERMS) if isinstance(present, dict) else None), {"matchFields": [here]}
    # any one of the terms is enough, so each must say it
    affinity[REQUIRED] = {TERMS: [_both(term, bound) for term in terms] or [bound]}


def _terms(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(term, dict) for term in value):
        return []
    return list(value)


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The term of those nodes that both terms take; an empty one takes none."""
    if not (one and other):
        return {}
    parts = {part: [*_listed(one.get(part)), *_listed(other.get(part))] for part in PARTS}
    return {part: copy_of(listed) for part, listed in parts.items() if listed}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
