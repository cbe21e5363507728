"""Which image the program's container has: the one that the notebook runs, exactly, or its GPU twin. Pure.

A tag may have moved since the notebook started, so the image is named by the digest that the node tells
(``status.containerStatuses[].imageID``), where that is one which a registry knows. An image that was built or
loaded on the node has a bare ``sha256:…`` there.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.annotations import shortened
from bitfusion_client.kubernetes.image_references import ALLOWED_IMAGE, is_image
from bitfusion_client.kubernetes.names import ANNOTATION_GPU_IMAGE
from bitfusion_client.kubernetes.raw_objects import annotations_of, mapping, mappings, text
from bitfusion_client.one_line import shown_value
from bitfusion_pods.pod.cannot_copy import NotebookUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_client.gpu_pods.settings import PodSettings

DIGEST = "sha256:"
DIGITS = 64
NO_IMAGE = "container {} of the notebook's pod has no image"


def image_of(
    notebook: Mapping[str, Any], container: Mapping[str, Any], settings: PodSettings
) -> dict[str, str]:
    """``image``, and ``imagePullPolicy`` where the notebook's container has one.

    Args:
        notebook: Its pod.
        container: Its container in that pod.
        settings: The admin's, with GPU twins of images.

    Raises:
        InvalidRequest: The notebook's annotation names no image.
        NotebookUnusable: The container has none.
    """
    own = text(container.get("image"))
    name = text(container.get("name"))
    if not is_image(own):
        raise NotebookUnusable("", NO_IMAGE.format(name))
    policy = text(container.get("imagePullPolicy"))
    manners = {"imagePullPolicy": policy} if policy else {}
    twin = twin_of(notebook, own, settings)
    if twin:
        return {"image": twin, **manners}
    # what is never pulled lies on the nodes under its tag
    pinned = "" if policy == "Never" or "@" in own else pinned_image(own, _image_id(notebook, name))
    if not pinned:
        return {"image": own, **manners}
    # by its digest there is nothing new to be had
    return {"image": pinned, "imagePullPolicy": "IfNotPresent"}


def pinned_image(own: str, image_id: str) -> str:
    """An image by the digest that a node tells; empty where that is no digest of the image's repository.

    One image may lie on a node under several repositories, of which the node tells one: there the digest may
    be another, and the pull secrets may be none.
    """
    repository, at, digest = image_id.rpartition("://")[2].partition("@")
    hexadecimal = digest[len(DIGEST) :]
    plain = len(hexadecimal) == DIGITS and set(hexadecimal) <= set("0123456789abcdef")
    if not at or not digest.startswith(DIGEST) or not plain or not is_image(image_id):
        return ""
    return f"{repository}@{digest}" if _full(repository) == _full(_repository(own)) else ""


def twin_of(notebook: Mapping[str, Any], own: str, settings: PodSettings) -> str:
    """The image for GPUs that notebook or settings name in place of its own; or empty. Raises as above."""
    return _annotated(notebook) or settings.gpu_image_of(own)


def _annotated(notebook: Mapping[str, Any]) -> str:
    value = annotations_of(notebook).get(ANNOTATION_GPU_IMAGE)
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not is_image(value):
        raise InvalidRequest(ANNOTATION_GPU_IMAGE, shortened(shown_value(value)), ALLOWED_IMAGE)
    return value


def _image_id(notebook: Mapping[str, Any], container: str) -> str:
    for status in mappings(mapping(notebook.get("status")).get("containerStatuses")):
        if status.get("name") == container:
            return text(status.get("imageID"))
    return ""


def _repository(reference: str) -> str:
    """Without tag and digest; the colon of a registry's port stays."""
    plain = reference.partition("@")[0]
    head, slash, last = plain.rpartition("/")
    return head + slash + last.partition(":")[0]


def _full(repository: str) -> str:
    """With the registry that a short name stands for, as containerd tells it."""
    first, slash, rest = repository.partition("/")
    if not slash:
        return f"docker.io/library/{repository}"
    if "." not in first and ":" not in first and first != "localhost":
        return f"docker.io/{repository}"
    return f"docker.io/{rest}" if first == "index.docker.io" else repository
