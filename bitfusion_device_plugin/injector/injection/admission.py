"""Admission of pods: the answer to one review. Pure; whoever serves it looks the Notebook up."""

from __future__ import annotations

from collections.abc import Mapping

from bitfusion_cluster.webhooks.review import UNPROCESSABLE, UNTOUCHED, Review, Verdict
from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.injector.injection.pod_patch import difference


def admit_pod(
    review: Review, settings: InjectorSettings, notebook: Mapping[str, object] | None = None
) -> Verdict:
    """The verdict on a pod's creation, for the first or another time; a dry run is answered the same.

    `notebook` are the annotations of its Notebook, see `injected_pod`.
    """
    pod = review.object
    if pod is None or review.kind != "Pod" or review.sub_resource or review.operation != "CREATE":
        return UNTOUCHED
    result = injected_pod(pod, review.namespace, settings, notebook)
    if isinstance(result, Refusal):
        return Verdict(False, message=result.message, code=UNPROCESSABLE)
    patch = difference(pod, result)
    return Verdict(patch=patch) if patch else UNTOUCHED
