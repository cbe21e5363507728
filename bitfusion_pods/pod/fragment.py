"""The admin's fragments put into a pod, and the node to which it is bound. Pure; changes the pod it is given.

Objects are merged by their names, lists are made longer, of all else the later one wins. Which fields a
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


def put_fragment(target: dict[str, Any], fragment: Mapping[str, Any]) -> None:
    """Merge a fragment into a pod or a part of it."""
    for name, value in fragment.items():
        present = target.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            put_fragment(present, value)
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
    terms = present.get("nodeSelectorTerms") if isinstance(present, dict) else None
    if not isinstance(terms, list) or not all(isinstance(term, dict) for term in terms):
        terms = []
    # any one of the terms is enough, so each must say it
    bound = [{**term, "matchFields": [*_listed(term.get("matchFields")), here]} for term in terms]
    affinity[REQUIRED] = {"nodeSelectorTerms": bound or [{"matchFields": [here]}]}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
