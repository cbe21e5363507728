"""What a GPU pod is made from, as the API has it: the notebook's pod, its template and its claims."""

from __future__ import annotations

from bitfusion_client.errors import PodRefused
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_pods.api.client import ApiError, path, pods
from bitfusion_pods.places import refusals
from bitfusion_pods.pod.volumes import claim_names

if TYPE_CHECKING:
    from typing import Any

    from bitfusion_pods.api.client import Api
    from bitfusion_pods.command.where import Where


@dataclass(frozen=True, slots=True)
class NotebookPod:
    """All as raw objects.

    Attributes:
        pod: The pod itself.
        container: The container for whose programs the GPU pods are.
        template: ``spec.template`` of its StatefulSet; None where it has none, or it may not be read.
        claims: The claims of its volumes that may be read, by name.
    """

    pod: dict[str, Any]
    container: str
    template: dict[str, Any] | None
    claims: dict[str, Any]

    @property
    def uid(self) -> str:
        """Of the pod."""
        return text(metadata_of(self.pod).get("uid"))


def read_notebook_pod(api: Api, where: Where) -> NotebookPod:
    """Read it. Raises PodRefused, ApiUnreachable, ClusterUnusable."""
    try:
        pod = api.get(pods(where.namespace, where.name))
        template = _template(api, where.namespace, pod)
        found = {
            name: api.find_readable(
                path("api", "v1", "namespaces", where.namespace, "persistentvolumeclaims", name)
            )
            for name in claim_names(pod)
        }
    except ApiError as error:
        refusal = refusals.refusal_of(error.status, error.reason, error.message)
        raise PodRefused("", refusal.words, refusal.next_step) from None
    names = [text(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("containers"))]
    container = where.container or (names[0] if names else "")
    return NotebookPod(pod, container, template, {name: claim for name, claim in found.items() if claim})


def _template(api: Api, namespace: str, pod: dict[str, Any]) -> dict[str, Any] | None:
    for owner in mappings(metadata_of(pod).get("ownerReferences")):
        if owner.get("kind") == "StatefulSet":
            name = text(owner.get("name"))
            found = api.find_readable(
                path("apis", "apps", "v1", "namespaces", namespace, "statefulsets", name)
            )
            template = mapping(mapping((found or {}).get("spec")).get("template"))
            return dict(template) or None
    return None
