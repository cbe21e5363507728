"""What the annotations of a pod, and of its Notebook, say about the injection."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.carried_annotations import ALLOWED_PATH, WRAPPING, allowed_annotations
from bitfusion_client.kubernetes.names import (
    ANNOTATION_MANAGEMENT,
    MANAGEMENT_INJECTION,
    MANAGEMENT_NONE,
)
from bitfusion_client.pod.pod_contract import ANNOTATION_PATH, PATH_NONE

LEAVING_ALONE = (MANAGEMENT_NONE, "off", "false", "n", "no")
ALLOWED_MANAGEMENT = (
    f"must be {MANAGEMENT_INJECTION} (the client is put into the pod), all (the container's command is run "
    f"with the GPUs, too) or {MANAGEMENT_NONE}"
)


class Management(Enum):
    """What is to be done with a pod that asks."""

    INJECTION = "injection"
    ALL = "all"
    NONE = "none"


def effective_annotations(pod: Mapping[str, Any], notebook: Mapping[str, object] | None) -> dict[str, Any]:
    """The pod's annotations, with those that its Notebook has now, key by key.

    A pod is made from a template whose annotations may be missing or older than the Notebook. A key that the
    Notebook lacks stays: it may come from a PodDefault. Values that no Notebook may have count as absent.

    Args:
        pod: ``metadata.annotations`` of the pod.
        notebook: ``metadata.annotations`` of its Notebook as it is now; None if the pod has none, or if
            nobody has looked.
    """
    return {**pod, **allowed_annotations(notebook)}


def management_of(annotations: Mapping[str, Any]) -> Management:
    """What is to be done with a pod that asks. Raises InvalidRequest for another word.

    Without the annotation the client is injected: no node has what such a pod asks for.
    """
    value = annotations.get(ANNOTATION_MANAGEMENT)
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (None, "", MANAGEMENT_INJECTION):
        return Management.INJECTION
    if word in WRAPPING:
        return Management.ALL
    if word in LEAVING_ALONE:
        return Management.NONE
    raise InvalidRequest(ANNOTATION_MANAGEMENT, value, ALLOWED_MANAGEMENT)


def wants_command_path(annotations: Mapping[str, Any]) -> bool:
    """Whether the command is to be mounted in ``/usr/local/bin``. Raises InvalidRequest."""
    value = annotations.get(ANNOTATION_PATH)
    if value in (None, ""):
        return True
    if value == PATH_NONE:
        return False
    raise InvalidRequest(ANNOTATION_PATH, value, ALLOWED_PATH)
