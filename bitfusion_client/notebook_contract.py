"""What a Kubeflow Notebook asks of Bitfusion, and what is written on it so that the rest finds it.

Called with raw dicts by the admission of Notebooks, by the reconciler that heals what admission missed, and
by the hook in the form's backend: all three make the same object. Pure; objects may have any shape, and none
is changed in place.
"""

from __future__ import annotations

from bitfusion_client.client_images import DEFAULT_RULES, client_for_image
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes_contract import (
    ADMISSION_IGNORE,
    ANNOTATION_CLIENT_OS,
    ANNOTATION_CLIENT_VERSION,
    ANNOTATION_MANAGEMENT,
    LABEL_ADMISSION,
    LABEL_REQUESTED,
    MANAGEMENT_INJECTION,
    is_copied_annotation,
    request_from_kubernetes,
)
from bitfusion_client.raw_objects import (
    annotations_of,
    asks_for_gpus,
    containers_of,
    init_containers_of,
    labels_of,
    mapping,
    metadata_of,
    pod_spec_of,
    size_limits_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.client_images import ImageRule
    from bitfusion_client.request import GpuRequest

REQUESTED = "true"  # the value of the label
DEFAULTED = (ANNOTATION_MANAGEMENT, ANNOTATION_CLIENT_OS, ANNOTATION_CLIENT_VERSION)


@dataclass(frozen=True, slots=True)
class NotebookChanges:
    """What is to be written on one Notebook; empty when everything is as it should be.

    `annotations` and `labels` are to be set, `removed_…` are present and to be removed, in a fixed order.
    `request` is None for a Notebook that asks for nothing. `notes` are for a person: each one line of less
    than 256 characters, as the API's warnings want it.
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


def notebook_request(notebook: Mapping[str, object]) -> GpuRequest | None:
    """What the Notebook asks for, in its limits or in the annotation that overrides them; None if nothing.

    Raises InvalidRequest: a size that cannot be, GPUs in an init container, or two containers that ask.
    """
    return _request(notebook, *_containers(notebook))


def _request(
    notebook: Mapping[str, object],
    containers: Sequence[Mapping[str, object]],
    init_containers: Sequence[Mapping[str, object]],
) -> GpuRequest | None:
    for container in init_containers:
        for name in size_limits_of(container):
            raise _refused(container, name, "an init container cannot ask for GPUs, only the notebook's can")
    asking = [container for container in containers if asks_for_gpus(container)]
    if len(asking) > 1:
        first = _name_of(asking[0])
        key = next(iter(size_limits_of(asking[1])))
        raise _refused(asking[1], key, f'only one container may ask for GPUs; container "{first}" does too')
    limits = size_limits_of(asking[0]) if asking else None
    return request_from_kubernetes(limits, annotations_of(notebook))


def notebook_changes(
    notebook: Mapping[str, object], rules: Sequence[ImageRule] = DEFAULT_RULES
) -> NotebookChanges:
    """What has to be written on a Notebook so that its pods get the client. The limits stay as written.

    One that asks gets the annotations that are absent, and the label. One that no longer asks but has the
    label loses it, and those annotations that have the value written here; nothing else is ever touched.
    One that is to be left alone is, right or wrong. Raises InvalidRequest.
    """
    if is_left_alone(labels_of(notebook)):
        return NotebookChanges(None, {}, {})
    containers, init_containers = _containers(notebook)
    request = _request(notebook, containers, init_containers)
    annotations, labels = annotations_of(notebook), labels_of(notebook)
    if request is not None:
        image = _image(notebook, containers)
        defaults = default_annotations(image, rules)
        missing = {name: value for name, value in defaults.items() if name not in annotations}
        label = {} if labels.get(LABEL_REQUESTED) == REQUESTED else {LABEL_REQUESTED: REQUESTED}
        return NotebookChanges(request, missing, label, notes=_notes_of_defaults(missing, image))
    if LABEL_REQUESTED not in labels:
        return NotebookChanges(None, {}, {})
    written = [default_annotations(container.get("image"), rules) for container in containers]
    removed = tuple(
        name
        for name in DEFAULTED
        if name in annotations and any(annotations[name] == defaults[name] for defaults in written)
    )
    note = "no Bitfusion GPU is asked for any more; removed: " + ", ".join((LABEL_REQUESTED, *removed))
    return NotebookChanges(None, {}, {}, removed, (LABEL_REQUESTED,), (_short(note),))


def apply_changes(notebook: Mapping[str, object], changes: NotebookChanges) -> dict[str, object]:
    """The Notebook with the changes; parts that do not change are shared with the one given."""
    result = dict(notebook)
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


def carried_annotations(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Those annotations of a Notebook that its StatefulSet's template takes over."""
    return {name: value for name, value in (annotations or {}).items() if is_copied_annotation(name)}


def bitfusion_part(notebook: Mapping[str, object]) -> tuple[object, ...]:
    """Everything of a Notebook that is about Bitfusion, to compare two states of it with ``==``.

    Called by admission, which lets a wrong object that is older than it be edited elsewhere.
    """
    containers, init_containers = _containers(notebook)
    return carried_annotations(annotations_of(notebook)), _asked(containers), _asked(init_containers)


def is_left_alone(labels: Mapping[str, object] | None) -> bool:
    """Whether an object's labels say ``bitfusion.io/admission: ignore``: its owner wants nothing of ours.

    The webhooks' selectors say so too, but an edit is sent if the object before or after it is selected.
    """
    return bool(labels) and mapping(labels).get(LABEL_ADMISSION) == ADMISSION_IGNORE


def has_size(notebook: Mapping[str, object]) -> bool:
    """Whether a container's limits name a Bitfusion size, right or wrong. Needs no parsing."""
    return any(asks_for_gpus(container) for container in _containers(notebook)[0])


def default_annotations(image: object, rules: Sequence[ImageRule] = DEFAULT_RULES) -> dict[str, str]:
    """The annotations of a Notebook that asks and says nothing else, in the order they are written."""
    rule = client_for_image(image, rules)
    return {
        ANNOTATION_MANAGEMENT: MANAGEMENT_INJECTION,
        ANNOTATION_CLIENT_OS: rule.client_os,
        ANNOTATION_CLIENT_VERSION: rule.client_version,
    }


def _notes_of_defaults(missing: Mapping[str, str], image: object) -> tuple[str, ...]:
    client = [f"{name}={missing[name]}" for name in DEFAULTED[1:] if name in missing]
    if not client:
        return ()
    which = _short(image, 100) if isinstance(image, str) and image else "without a name"
    return (_short(f"Bitfusion client chosen for the image {which}: " + ", ".join(client)),)


def notebook_image(notebook: Mapping[str, object]) -> object:
    """The image of the container that asks, else of the notebook's own container.

    That is the one with the Notebook's name; the first, if there is none.
    """
    return _image(notebook, _containers(notebook)[0])


def _image(notebook: Mapping[str, object], containers: Sequence[Mapping[str, object]]) -> object:
    for container in containers:
        if asks_for_gpus(container):
            return container.get("image")
    name = metadata_of(notebook).get("name")
    for container in containers:
        if isinstance(name, str) and container.get("name") == name:
            return container.get("image")
    return containers[0].get("image") if containers else None


def _refused(container: Mapping[str, object], key: str, allowed: str) -> InvalidRequest:
    spelled = f'{key} of container "{_name_of(container)}"'
    return InvalidRequest(key, size_limits_of(container)[key], allowed, spelled)


def _containers(
    notebook: Mapping[str, object],
) -> tuple[list[Mapping[str, object]], list[Mapping[str, object]]]:
    spec = pod_spec_of(notebook)
    return containers_of(spec), init_containers_of(spec)


def _asked(containers: Sequence[Mapping[str, object]]) -> list[tuple[object, dict[str, object]]]:
    asking = [container for container in containers if asks_for_gpus(container)]
    return [(container.get("name"), size_limits_of(container)) for container in asking]


def _name_of(container: Mapping[str, object]) -> str:
    return _short(container.get("name") or "", 63)


def _short(text: object, longest: int = 240) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"
