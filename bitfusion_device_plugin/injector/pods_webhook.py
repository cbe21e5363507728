"""The webhook of pods: looks up the Notebook where the pod is one's, then injects what the pod asks for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from bitfusion_cluster.notebooks.owners import Owners
from bitfusion_cluster.webhooks.review import FAULT, UNTOUCHED, Review, Verdict
from bitfusion_cluster.webhooks.review_server import Webhook
from bitfusion_device_plugin.injector.injection.admission import admit_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.pod_notebook import annotations_taken_over, asks, notebook_of

PODS = "pods"
FAILURE = (
    "Bitfusion's pod injector failed on this pod, so it was not created: without the client it could not use "
    "its GPUs. This is a fault of the injector, and its log says which; tell your administrator."
)
LET_THROUGH = "Bitfusion's pod injector failed on this pod and left it as it is; the cause is in its log"


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
