"""The webhook of pods: which Notebook a pod belongs to, what it takes over from that, and what it gets.

A pod's annotations come from its StatefulSet's template. They are missing or old where admission was away
when the template was written, and with Kubeflow up to 1.7, whose controller copies none. So for a pod of a
Notebook the injector asks for the Notebook itself, and the next start is right whatever happened before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
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
from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.webhooks.review import FAULT, UNTOUCHED, Review, Verdict
from bitfusion_cluster.webhooks.review_server import Webhook
from bitfusion_device_plugin.injector.injection.injected_pod import admit_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings

PODS = "pods"
FAILURE = (
    "Bitfusion's pod injector failed on this pod, so it was not created: without the client it could not use "
    "its GPUs. The cause is in the injector's log; tell your administrator."
)
LET_THROUGH = "Bitfusion's pod injector failed on this pod and left it unchanged; the cause is in its log"

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

    The label says it that Kubeflow's controller gives its pods. The StatefulSet that owns the pod may be
    called otherwise: Open Data Hub's are, for long names.

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
    return name if any(each.get("kind") == "StatefulSet" for each in owners) else ""


def annotations_taken_over(pod: Pod, notebook: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The Notebook's annotations where they are to win over the pod's; None where the pod's alone count.

    `notebook`: as they are now; None if it could not be read, or is gone. A change that the Notebook says is
    pending is not taken over: its user was told that it waits for a stop and a start, and this pod may
    replace one whose node was drained.
    """
    if notebook and ANNOTATION_PENDING in notebook and ANNOTATION_MANAGEMENT in annotations_of(pod):
        return None
    return notebook


class PodsWebhook:
    """Decides about pods.

    Args:
        settings: Gives the settings in force.
        notebooks: Looks up Notebooks; in this process without a cache.
    """

    def __init__(self, settings: Callable[[], InjectorSettings], notebooks: Owners) -> None:
        self._settings = settings
        self._notebooks = notebooks

    @property
    def webhook(self) -> Webhook:
        """For the server. An injected pod says so itself, in its annotations; the log need not repeat it."""
        return Webhook(PODS, self.decide, failed, patched_level=logging.DEBUG)

    def decide(self, review: Review) -> Verdict | Awaitable[Verdict]:
        """At once, where the pod is not a Notebook's."""
        name = notebook_of(review)
        if not name:
            return admit_pod(review, self._settings())
        return self._looked_up(review, name)

    async def _looked_up(self, review: Review, name: str) -> Verdict:
        notebook = await self._notebooks.current(review.namespace, name)
        if notebook.left_alone:
            return UNTOUCHED
        annotations = annotations_taken_over(review.object or {}, notebook.annotations)
        return admit_pod(review, self._settings(), annotations)


def failed(review: Review) -> Verdict:
    """After a bug: a pod that asks is refused, any other one, which a server of before 1.28 sends, passes."""
    if review.object is not None and asks(review.object):
        return Verdict(allowed=False, message=FAILURE, code=FAULT)
    return Verdict(warnings=(LET_THROUGH,))
