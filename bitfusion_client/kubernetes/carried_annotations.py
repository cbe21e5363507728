"""The annotations of a Notebook that its StatefulSet's template takes over: which, and with which values.

Whoever may write a Notebook writes them, and they reach pods, the paths of an injector, and the caches of
the controller. So a value that is not allowed here is refused where it is written, and never carried.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.annotations import (
    ALLOWED_FILTER_LENGTH,
    ALLOWED_LENGTH,
    ALLOWED_TEXT,
    LONGEST_FILTER,
    LONGEST_REQUEST,
    shortened,
)
from bitfusion_client.kubernetes.client_images import ALLOWED_WORD, is_client_word
from bitfusion_client.kubernetes.image_references import ALLOWED_IMAGE, is_image
from bitfusion_client.kubernetes.names import (
    ANNOTATION_CLIENT_OS,
    ANNOTATION_CLIENT_VERSION,
    ANNOTATION_FILTER,
    ANNOTATION_GPU_IMAGE,
    ANNOTATION_MANAGEMENT,
    ANNOTATION_REQUEST,
    MANAGEMENT_INJECTION,
    MANAGEMENT_NONE,
)
from bitfusion_client.pod.pod_contract import ANNOTATION_PATH, PATH_NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Of the injector: in a template nothing else of it may stand; its ``status`` would make it pass a pod over.
INJECTOR_PREFIXES = ("auto-management/", "bitfusion-client/")

# Words for which VMware's injector puts the pod's command under `bitfusion run`, in any case.
WRAPPING = ("all", "on", "true", "y", "yes")

ALLOWED_MANAGEMENT = f"must be {MANAGEMENT_INJECTION} or {MANAGEMENT_NONE}"
NO_WRAPPING = (
    f"{ALLOWED_MANAGEMENT}; this would run the notebook server itself on the GPUs, which it would hold until "
    "the notebook is stopped"
)
ALLOWED_PATH = f"must be {PATH_NONE} (no command in /usr/local/bin) or absent"
LEFT_OUT = "; remove the annotation to have the client chosen by the image"


def is_carried_annotation(name: str) -> bool:
    """Whether a Notebook's annotation is carried to its StatefulSet's template, if its value is allowed."""
    return name in CARRIED_ANNOTATIONS


def carried_annotations(annotations: Mapping[str, object] | None) -> dict[str, object]:
    """Those annotations that are carried, with allowed values and others."""
    return {name: value for name, value in (annotations or {}).items() if is_carried_annotation(name)}


def allowed_annotations(annotations: Mapping[str, object] | None) -> dict[str, str]:
    """Those annotations that are carried and have values that are allowed: what reaches a template."""
    return {
        name: value
        for name, value in (annotations or {}).items()
        if is_carried_annotation(name) and isinstance(value, str) and not RULES[name](value)
    }


def check_carried_annotations(annotations: Mapping[str, object]) -> None:
    """Raise InvalidRequest for the first carried annotation, by name, whose value is not allowed."""
    for error in wrong_annotations(annotations):
        raise error


def wrong_annotations(annotations: Mapping[str, object]) -> Iterator[InvalidRequest]:
    """The carried annotations, by name, whose values are not allowed.

    What the annotation of a request says is left to `annotations`.
    """
    for name in sorted(CARRIED_ANNOTATIONS):
        if name not in annotations:
            continue
        value = annotations[name]
        allowed = RULES[name](value) if isinstance(value, str) else ALLOWED_TEXT
        if allowed:
            shown = shortened(value) if isinstance(value, str) else value
            yield InvalidRequest(name, shown, allowed)


def _wrong_management(value: str) -> str:
    if value in (MANAGEMENT_INJECTION, MANAGEMENT_NONE):
        return ""
    return NO_WRAPPING if value[:8].lower() in WRAPPING else ALLOWED_MANAGEMENT


# What is carried, each by a rule of its own: what is allowed instead of a value, empty if the value is.
RULES: dict[str, Callable[[str], str]] = {
    ANNOTATION_MANAGEMENT: _wrong_management,
    **dict.fromkeys(
        (ANNOTATION_CLIENT_OS, ANNOTATION_CLIENT_VERSION),
        lambda value: "" if is_client_word(value) else ALLOWED_WORD + LEFT_OUT,
    ),
    ANNOTATION_FILTER: lambda value: ALLOWED_FILTER_LENGTH if len(value) > LONGEST_FILTER else "",
    ANNOTATION_REQUEST: lambda value: ALLOWED_LENGTH if len(value) > LONGEST_REQUEST else "",
    ANNOTATION_PATH: lambda value: "" if value in (PATH_NONE, "") else ALLOWED_PATH,
    # of GPU pods, which are made with what the notebook's pod has
    ANNOTATION_GPU_IMAGE: lambda value: "" if value == "" or is_image(value) else ALLOWED_IMAGE,
}
CARRIED_ANNOTATIONS = tuple(RULES)
