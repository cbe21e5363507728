"""The `gpus` part of Kubeflow's ``spawner_ui_config.yaml``, and a whole file with only that part replaced.

Facts of the form (1.4 to 1.11): it reads ``gpus.readOnly`` and, under ``gpus.value``, ``num``, ``vendor`` and
``vendors`` with ``limitsKey`` and ``uiName``. The numbers are fixed in its page. ``limits[vendor] = num`` is
all its backend writes, so a size must be one key whose value is the number that was picked. Its list of
notebooks adds up ``int()`` of all configured keys: one that holds an amount of memory makes the whole list an
error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from bitfusion_client.kubernetes.names import GROUP
from jupyter_ext.spawner.sizes import SizeList, as_read
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import Document, written_from
from jupyter_ext.spawner.yaml_edit import CannotEdit, Edited, json_text, put

NUMBERS = (1, 2, 4, 8)  # of the form's page, which has none beside them but "none"
NO_NUMBER = "none"
ROOT = "spawnerFormDefaults"

ALLOWED_GPUS = (
    "must be left out: users pick the number beside the size; only the size with default: true preselects "
    "one. GPUs that belong to the size itself are its number"
)
ALLOWED_NUMBER = (
    "must be 1, 2, 4 or 8, the numbers that the form offers; any other number can be part of the size itself"
)
ALLOWED_BLOCK = (
    "shares text with another value, which a change would alter, too; write it without anchors, "
    "aliases and merges (<<)"
)


@dataclass(frozen=True, slots=True)
class FormGpus:
    """The part as it will be. `vendors` in the order of the dropdown, each as the form's file has it.

    `removed` are keys of Bitfusion that the file had and the list of sizes has no longer. `source` is the
    name of the list of sizes, empty where there is none.
    """

    vendors: tuple[dict[str, object], ...]
    num: str
    vendor: str
    read_only: bool
    removed: tuple[str, ...]
    source: str

    def data(self) -> dict[str, object]:
        """As the form's backend reads it."""
        value = {"num": self.num, "vendor": self.vendor, "vendors": [dict(item) for item in self.vendors]}
        return {"readOnly": self.read_only, "value": value}


def form_gpus(sizes: SizeList, existing: Document | None = None) -> FormGpus:
    """What the dropdown will offer: the other vendors, then the sizes. Raises WrongFile.

    Other vendors and what is preselected come from the list of sizes; where that leaves it open, from
    `existing`, a whole ``spawner_ui_config.yaml``.
    """
    _check_numbers(sizes)
    had = _existing_gpus(existing) if existing is not None else _ExistingGpus()
    if sizes.other_vendors is None:
        others = [item for item in had.vendors if not _is_ours(item)]
    else:
        others = [{"limitsKey": vendor.key, "uiName": vendor.label} for vendor in sizes.other_vendors]
    ours: list[dict[str, object]] = [{"limitsKey": size.key, "uiName": size.label} for size in sizes.sizes]
    _check_labels(sizes, others)
    num, vendor = had.num, had.vendor
    if sizes.default is not None:
        num, vendor = str(sizes.default.preselected), sizes.default.key
    elif vendor and vendor not in [item["limitsKey"] for item in others]:
        num, vendor = NO_NUMBER, ""
    keys = {item["limitsKey"] for item in ours}
    removed = [
        str(item["limitsKey"]) for item in had.vendors if _is_ours(item) and item["limitsKey"] not in keys
    ]
    return FormGpus((*others, *ours), num, vendor, had.read_only, tuple(removed), sizes.source)


def without_sizes(existing: Document, before: Document | None) -> FormGpus | None:
    """What the dropdown offers without this installation's sizes; None: it has none. Raises WrongFile.

    Sizes that `before` has, an earlier file, come back; so does what it preselects, if a size of ours was
    preselected since. All else stays as it is in `existing`.
    """
    now = _existing_gpus(existing)
    had = _existing_gpus(before) if before is not None else _ExistingGpus()
    if not any(_is_ours(item) for item in now.vendors):
        return None
    others = [item for item in now.vendors if not _is_ours(item)]
    vendors = (*others, *(item for item in had.vendors if _is_ours(item)))
    keys = {item["limitsKey"] for item in vendors}
    num, vendor = (now.num, now.vendor) if now.vendor in keys else (had.num, had.vendor)
    if vendor not in keys:
        num, vendor = NO_NUMBER, ""
    return FormGpus(vendors, num, vendor, now.read_only, (), "")


def offered_keys(existing: Document) -> dict[str, str]:
    """The keys and labels of Bitfusion in the dropdown of a form's file. Raises WrongFile."""
    vendors = _existing_gpus(existing).vendors
    return {str(item["limitsKey"]): str(item["uiName"]) for item in vendors if _is_ours(item)}


def gpus_part(form: FormGpus) -> str:
    """The part alone, under the key it belongs to: to be read, or pasted into the file."""
    return "\n".join([f"{ROOT}:", *_block(form, "  ")]) + "\n"


def replace_gpus(existing: Document, form: FormGpus) -> Edited:
    """The text of `existing` with only its `gpus` replaced, or added at the end of the form's defaults.

    Comments, order and line ends elsewhere stay as they are. Raises WrongFile where that cannot be done.
    """
    try:
        return put(existing, (ROOT, "gpus"), form.data(), _block(form, ""))
    except CannotEdit:
        raise WrongFile(existing.source, "gpus", None, ALLOWED_BLOCK) from None


def form_defaults(existing: Document) -> dict[str, object]:
    """What the form's file says of its fields, by their names. Raises WrongFile: it is another file."""
    data = existing.data
    if isinstance(data, dict) and isinstance(data.get(ROOT), dict):
        return dict(data[ROOT])
    raise WrongFile(existing.source, "", None, f"has no {ROOT}, so it is not the form's configuration")


def _block(form: FormGpus, indent: str) -> list[str]:
    lines = [
        "gpus:",
        *(["  " + written_from(form.source, "form")] if form.source else []),
        f"  readOnly: {json.dumps(form.read_only)}",
        "  value:",
        "    # what is preselected; users pick number × vendor",
        f"    num: {json_text(form.num)}",
        f"    vendor: {json_text(form.vendor)}",
        "    vendors:" + ("" if form.vendors else " []"),
    ]
    for vendor in form.vendors:
        for place, (name, value) in enumerate(vendor.items()):
            lines.append(f"    {'  ' if place else '- '}{_key(name)}: {json_text(value)}")
    return [indent + line for line in lines]


def _key(name: str) -> str:
    return name if name.isidentifier() else json_text(name)


@dataclass(frozen=True, slots=True)
class _ExistingGpus:
    """What a form has without us, or has now."""

    vendors: tuple[dict[str, object], ...] = ()
    num: str = NO_NUMBER
    vendor: str = ""
    read_only: bool = False


def _existing_gpus(existing: Document) -> _ExistingGpus:
    gpus = as_mapping(existing, form_defaults(existing).get("gpus"), "gpus")
    value = as_mapping(existing, gpus.get("value"), "gpus", "value")
    vendors = value.get("vendors") or []
    if not isinstance(vendors, list):
        place = f"gpus.value.vendors (line {existing.line(ROOT, 'gpus', 'value', 'vendors')}):"
        raise WrongFile(existing.source, place, vendors, "must be a list")
    return _ExistingGpus(
        tuple(_existing_vendor(existing, item, index) for index, item in enumerate(vendors)),
        str(value.get("num", NO_NUMBER)),
        str(value.get("vendor") or ""),
        gpus.get("readOnly") is True,
    )


def as_mapping(existing: Document, value: object, *path: str) -> dict[str, object]:
    """The value at this place under the form's defaults, {} if there is none. Raises WrongFile for others."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    place = f"{'.'.join(path)} (line {existing.line(ROOT, *path)}):"
    raise WrongFile(existing.source, place, value, "must be a mapping")


def _existing_vendor(existing: Document, item: object, index: int) -> dict[str, object]:
    names = ("limitsKey", "uiName")
    if isinstance(item, dict) and all(isinstance(item.get(name), str) for name in names):
        # fields the form does not know may be some fork's; they stay if they can be written
        try:
            if json.loads(json.dumps(item)) == item:
                return {name: item[name] for name in sorted(item, key=lambda name: name not in names)}
        except (TypeError, ValueError, RecursionError):
            pass
    place = f"vendor {index + 1} (line {existing.line(ROOT, 'gpus', 'value', 'vendors', index)}):"
    raise WrongFile(existing.source, place, item, "must have a limitsKey and a uiName, both text")


def _is_ours(vendor: dict[str, object]) -> bool:
    return str(vendor["limitsKey"]).startswith(GROUP)


def _check_numbers(sizes: SizeList) -> None:
    for place, size in zip(sizes.places, sizes.sizes, strict=True):
        gpus = size.preselected
        if not size.default and gpus != 1:
            raise WrongFile(sizes.source, f"{place}: gpus", gpus, ALLOWED_GPUS)
        if gpus not in NUMBERS:
            raise WrongFile(sizes.source, f"{place}: gpus", gpus, ALLOWED_NUMBER)


def _check_labels(sizes: SizeList, others: list[dict[str, object]]) -> None:
    labels = {as_read(str(item["uiName"])): item for item in others}
    for place, size in zip(sizes.places, sizes.sizes, strict=True):
        other = labels.get(as_read(size.label))
        if other is not None:
            allowed = f"is also the label of {other['limitsKey']}; users could not tell them apart"
            raise WrongFile(sizes.source, f"{place}: label", size.label, allowed)
