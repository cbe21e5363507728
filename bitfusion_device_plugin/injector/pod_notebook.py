"""Which Notebook a pod belongs to, and what of it the pod takes over. Pure.

A pod's annotations come from its StatefulSet's template. They are missing or old where admission was away
when the template was written, and with Kubeflow up to 1.7, whose controller copies none. So for a pod of a
Notebook the injector asks for the Notebook itself, and the next start is right whatever happened before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_client.kubernetes.names import (
    ANNOTATION_MANAGEMENT,
    ANNOTATION_PENDING,
    MANAGEMENT_NONE,
)
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    asks_for_gpus,
    containers_of,
    init_containers_of,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    text,
)
from bitfusion_client.pod.pod_contract import (
    ANNOTATION_STATUS,
    INIT_CONTAINER,
    LABEL_NOTEBOOK,
    STATUS_INJECTED,
)
from bitfusion_cluster.webhooks.review import Review

Pod = Mapping[str, Any]


def asks(pod: Pod) -> bool:
    """Whether a pod is the injector's to judge: a size in a container's limits, or the annotation.

    The same as the webhook's ``matchConditions``, which some servers drop; a test compares the two.
    """
    spec, annotations = mapping(pod.get("spec")), annotations_of(pod)
    if any(map(asks_for_gpus, (*containers_of(spec), *init_containers_of(spec)))):
        return True
    if ANNOTATION_MANAGEMENT in annotations and annotations[ANNOTATION_MANAGEMENT] != MANAGEMENT_NONE:
        return True
    return annotations.get(ANNOTATION_STATUS) == STATUS_INJECTED


def notebook_of(review: Review) -> str:
    """The name of the Notebook to be looked up for a pod; empty where none is needed.

    None is for a pod that asks for nothing, that is no Notebook's, and that has been injected: it comes again
    after other webhooks, and must be answered the same.
    """
    pod = review.object
    name = text(labels_of(pod).get(LABEL_NOTEBOOK)) if pod is not None and review.namespace else ""
    if pod is None or not name or not asks(pod):
        return ""
    if any(each.get("name") == INIT_CONTAINER for each in init_containers_of(mapping(pod.get("spec")))):
        return ""
    owners = mappings(metadata_of(pod).get("ownerReferences"))
    made = any(each.get("kind") == "StatefulSet" and each.get("name") == name for each in owners)
    return name if made else ""


def annotations_taken_over(pod: Pod, notebook: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The Notebook's annotations where they are to win over the pod's; None where the pod's alone count.

    `notebook`: as they are now; None if it could not be read, or is gone. A change that the Notebook says is
    pending is not taken over: its user was told that it waits for a stop and a start, and this pod may
    replace one whose node was drained.
    """
    if notebook and ANNOTATION_PENDING in notebook and ANNOTATION_MANAGEMENT in annotations_of(pod):
        return None
    return notebook
