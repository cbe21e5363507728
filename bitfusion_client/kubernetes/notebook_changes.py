"""The annotations and the label written on a Notebook that asks for GPUs, and removed when it asks no more.

Admission, the reconciler that heals what admission missed, and the hook in the form's backend call it with
raw objects: all three make the same object. Nothing is changed in place.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.carried_annotations import check_carried_annotations
from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, client_for_image
from bitfusion_client.kubernetes.names import (
    ANNOTATION_CLIENT_OS,
    ANNOTATION_CLIENT_VERSION,
    ANNOTATION_MANAGEMENT,
    LABEL_REQUESTED,
    MANAGEMENT_INJECTION,
)
from bitfusion_client.kubernetes.notebook_request import is_left_alone, notebook_image, notebook_request
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    labels_of,
    mapping,
    metadata_of,
)
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from bitfusion_client.kubernetes.client_images import ImageRule
    from bitfusion_client.request.gpu_request import GpuRequest

REQUESTED = "true"  # the value of the label
DEFAULTED = (ANNOTATION_MANAGEMENT, ANNOTATION_CLIENT_OS, ANNOTATION_CLIENT_VERSION)
LONGEST_NOTE = 240  # characters
LONGEST_IMAGE = 100  # characters of an image within a note


@dataclass(frozen=True, slots=True)
class NotebookChanges:
    """What is to be written on one Notebook; empty when everything is as it should be.

    Attributes:
        request: None for a Notebook that asks for nothing.
        annotations: To be set.
        labels: To be set.
        removed_annotations: Present and to be removed, in a fixed order.
        removed_labels: Present and to be removed.
        notes: Why, one line each, for whoever looks into a log.
    """

    request: GpuRequest | None
    annotations: dict[str, str]
    labels: dict[str, str]
    removed_annotations: tuple[str, ...] = ()
    removed_labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not (self.annotations or self.labels or self.removed_annotations or self.removed_labels)


NOTHING = NotebookChanges(None, {}, {})


def notebook_changes(
    notebook: Mapping[str, object], rules: Sequence[ImageRule] = DEFAULT_RULES
) -> NotebookChanges:
    """What has to be written on a Notebook so that its pods get the client. The limits stay as written.

    A Notebook that asks gets the annotations that are absent, and the label. One that no longer asks but has
    the label loses it, and those annotations that still have the value written here. One that is left alone
    is not changed, right or wrong.

    Raises InvalidRequest: a size that cannot be; or an annotation that is carried, whose value is not
    allowed, also on a Notebook that asks for nothing.
    """
    annotations, labels = annotations_of(notebook), labels_of(notebook)
    if is_left_alone(labels):
        return NOTHING
    check_carried_annotations(annotations)
    request = notebook_request(notebook)
    if request is not None:
        image = notebook_image(notebook)
        defaults = default_annotations(image, rules)
        missing = {name: value for name, value in defaults.items() if name not in annotations}
        label = {} if labels.get(LABEL_REQUESTED) == REQUESTED else {LABEL_REQUESTED: REQUESTED}
        return NotebookChanges(request, missing, label, notes=_notes_of_defaults(missing, image))
    if LABEL_REQUESTED not in labels:
        return NOTHING
    written = default_annotations(notebook_image(notebook), rules)
    removed = tuple(name for name in DEFAULTED if annotations.get(name) == written[name])
    note = "Bitfusion GPUs are no longer requested; removed: " + ", ".join((LABEL_REQUESTED, *removed))
    return NotebookChanges(None, {}, {}, removed, (LABEL_REQUESTED,), (one_line(note, LONGEST_NOTE),))


def default_annotations(image: object, rules: Sequence[ImageRule] = DEFAULT_RULES) -> dict[str, str]:
    """The annotations of a Notebook that asks and says nothing else, in the order they are written."""
    rule = client_for_image(image, rules)
    return {
        ANNOTATION_MANAGEMENT: MANAGEMENT_INJECTION,
        ANNOTATION_CLIENT_OS: rule.client_os,
        ANNOTATION_CLIENT_VERSION: rule.client_version,
    }


def apply_changes(notebook: Mapping[str, object], changes: NotebookChanges) -> dict[str, Any]:
    """The Notebook with the changes; parts that do not change are shared with the one given."""
    result: dict[str, Any] = dict(notebook)
    if changes.is_empty():
        return result
    metadata = dict(metadata_of(notebook))
    result["metadata"] = metadata
    for part, written, removed in (
        ("annotations", changes.annotations, changes.removed_annotations),
        ("labels", changes.labels, changes.removed_labels),
    ):
        if written or removed:
            kept = mapping(metadata.get(part))
            metadata[part] = {
                **{name: value for name, value in kept.items() if name not in removed},
                **written,
            }
    return result


def _notes_of_defaults(missing: Mapping[str, str], image: object) -> tuple[str, ...]:
    client = [f"{name}={missing[name]}" for name in DEFAULTED[1:] if name in missing]
    if not client:
        return ()
    which = one_line(image, LONGEST_IMAGE) if isinstance(image, str) and image else "without a name"
    return (one_line(f"Bitfusion client chosen for the image {which}: " + ", ".join(client), LONGEST_NOTE),)
