"""A notebook image in the list that Kubeflow's form offers: `image.options` of ``spawner_ui_config.yaml``.

Facts of the form (1.4 to 1.11): under ``image`` it reads ``value``, which is preselected, ``options``, its
list of JupyterLab images, and ``readOnly``. Other lists of that name belong to other editors
(``imageGroupOne``), to tolerations and to affinities; nobody may take one for this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_ext.spawner.form_config import ALLOWED_BLOCK, ROOT, as_mapping, form_defaults
from jupyter_ext.spawner.wrong_file import WrongFile, shown
from jupyter_ext.spawner.yaml_document import Document, parse_document
from jupyter_ext.spawner.yaml_edit import CannotEdit, Edited, plain_text, put, put_first, take_out

NO_LIST = "has no `image`, where the form keeps its list of images; add it with value and options"


@dataclass(frozen=True, slots=True)
class FormImage:
    """What has become of an image: the file's new text, and what is to be told of it, in whole lines."""

    edited: Edited
    told: tuple[str, ...]


def add_image(existing: Document, image: str) -> FormImage:
    """The form's file with this image first in its list, unless the list has it.

    Called by `kubeflow-bitfusion form --image`. Comments, order and style stay as they are. Raises WrongFile
    where there is no list that it could be added to.
    """
    defaults = form_defaults(existing)
    if defaults.get("image") is None:
        raise WrongFile(existing.source, f"{ROOT} (line {existing.line(ROOT)})", None, NO_LIST)
    field = as_mapping(existing, defaults["image"], "image")
    options = field.get("options")
    if options is not None and not isinstance(options, list):
        place = f"image.options (line {existing.line(ROOT, 'image', 'options')}):"
        raise WrongFile(existing.source, place, options, "must be a list")
    preselected = field.get("value")
    told = []
    if options is not None and image in options:
        line = existing.line(ROOT, "image", "options", options.index(image))
        told.append(f"The form's list of images already has {image} (line {line}).")
        edited = Edited(existing.text)
    else:
        is_lost = not options and isinstance(preselected, str) and preselected != image
        others = [str(preselected)] if is_lost else []
        edited = _added(existing, image, options, others)
        behind = f", before {len(options)} more" if options else f", with {preselected}" if others else ""
        told.append(f"The form's list of images now has {image}{behind}.")
    if field.get("readOnly") is True:
        told.append(f"image.readOnly is true in your file: all users get {shown(preselected)}.")
    return FormImage(edited, tuple(told))


def images_of(existing: Document) -> list[object]:
    """The form's list of images; empty if there is none. Raises WrongFile."""
    options = as_mapping(existing, form_defaults(existing).get("image"), "image").get("options")
    return options if isinstance(options, list) else []


def without_image(existing: Document, image: str) -> Edited:
    """The form's file without this image in its list, unless it is preselected. Raises WrongFile."""
    field = as_mapping(existing, form_defaults(existing).get("image"), "image")
    images = images_of(existing)
    if image not in images or field.get("value") == image:
        return Edited(existing.text)
    path = (ROOT, "image", "options")
    try:
        return take_out(existing, path, images.index(image))
    except CannotEdit:
        place = f"image.options (line {existing.line(*path)})"
        raise WrongFile(existing.source, place, None, ALLOWED_BLOCK) from None


def _added(existing: Document, image: str, options: list[object] | None, others: list[str]) -> Edited:
    """With others that the form would offer, had its file no list at all."""
    path, images = (ROOT, "image", "options"), [image, *others]
    try:
        if options is None:
            return put(existing, path, images, ["options:", *(f"- {plain_text(item)}" for item in images)])
        edited = Edited(existing.text)
        for item in reversed(images):
            more = put_first(parse_document(edited.text, existing.source), path, item)
            edited = Edited(more.text, edited.aliases + more.aliases)
        return edited
    except CannotEdit:
        place = f"image.options (line {existing.line(*path)})"
        raise WrongFile(existing.source, place, None, ALLOWED_BLOCK) from None
