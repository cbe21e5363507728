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
from typing import TYPE_CHECKING

from bitfusion_client.kubernetes.names import GROUP
from jupyter_ext.spawner.sizes import SizeList, as_read
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import Document, child, parse_document, written_from

if TYPE_CHECKING:
    import yaml

NUMBERS = (1, 2, 4, 8)  # of the form's page, which has none beside them but "none"
NO_NUMBER = "none"
ROOT = "spawnerFormDefaults"

ALLOWED_GPUS = (
    "must be left out: users pick the number beside the size; only the size with default: true preselects "
    "one. GPUs that belong to the size itself are its number"
)
ALLOWED_NUMBER = "must be 1, 2, 4 or 8, the numbers the form has; any other one can be the size's own number"
ALLOWED_BLOCK = (
    "is written in a way that cannot be replaced safely (braces, an anchor or an alias); write it as a block"
)


@dataclass(frozen=True, slots=True)
class FormGpus:
    """The part as it will be. `vendors` in the order of the dropdown, each as the form's file has it.

    `removed` are keys of Bitfusion that the file had and the list of sizes has no longer.
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


def gpus_part(form: FormGpus) -> str:
    """The part alone, under the key it belongs to: to be read, or pasted into the file."""
    return "\n".join([f"{ROOT}:", *_block(form, "  ")]) + "\n"


def replace_gpus(existing: Document, form: FormGpus) -> str:
    """The text of `existing` with only its `gpus` replaced, or added at the end of the form's defaults.

    Comments, order and line ends elsewhere stay as they are. Raises WrongFile where that cannot be done.
    """
    import yaml

    text = existing.text
    found = child(existing.node, ROOT)
    root = found[1] if found else None
    if not isinstance(root, yaml.MappingNode) or root.flow_style or not root.value:
        raise WrongFile(existing.source, ROOT, None, ALLOWED_BLOCK)
    line_end = "\r\n" if "\r\n" in text else "\n"
    indent = " " * root.value[0][0].start_mark.column
    pair = child(root, "gpus")
    block = line_end.join(_block(form, indent))
    if pair is not None:
        start = pair[0].start_mark.index
        result = text[:start] + block[len(indent) :] + text[_content_end(text, pair[1], start) :]
    else:
        end = _content_end(text, root, 0)
        result = text[:end] + line_end + block + text[end:]
    _check_result(existing, result, form)
    return result


def _block(form: FormGpus, indent: str) -> list[str]:
    lines = [
        "gpus:",
        "  " + written_from(form.source, "form"),
        f"  readOnly: {json.dumps(form.read_only)}",
        "  value:",
        "    # what is preselected; users pick number × vendor",
        f"    num: {_quoted(form.num)}",
        f"    vendor: {_quoted(form.vendor)}",
        "    vendors:" + ("" if form.vendors else " []"),
    ]
    for vendor in form.vendors:
        for place, (name, value) in enumerate(vendor.items()):
            lines.append(f"    {'  ' if place else '- '}{_key(name)}: {_quoted(value)}")
    return [indent + line for line in lines]


def _quoted(value: object) -> str:
    # JSON is YAML; letters that are not printable must be escaped in both
    return json.dumps(value, ensure_ascii=isinstance(value, str) and not value.isprintable())


def _key(name: str) -> str:
    return name if name.isidentifier() else _quoted(name)


def _content_end(text: str, node: yaml.Node, start: int) -> int:
    """The position after the last word of a node and of a comment in the same line.

    A block's own end mark lies at the next entry, behind comments that belong to that one.
    """
    import yaml

    end = start
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, yaml.CollectionNode) and item.value and not item.flow_style:
            last = item.value[-1]
            waiting += last if isinstance(last, tuple) else (last,)
        else:
            end = max(end, item.end_mark.index)
    end = len(text[:end].rstrip())
    line_end = len(text)
    for mark in ("\r\n", "\n"):
        place = text.find(mark, end)
        line_end = place if place >= 0 and place < line_end else line_end
    rest = text[end:line_end].strip()
    return line_end if not rest or rest.startswith("#") else end


def _check_result(existing: Document, result: str, form: FormGpus) -> None:
    """Read back: everything else must be as before. Catches anchors, aliases, braces."""
    wanted = existing.data
    assert isinstance(wanted, dict)
    wanted = {**wanted, ROOT: {**wanted[ROOT], "gpus": form.data()}}
    try:
        same = parse_document(result, existing.source).data == wanted
    except WrongFile:
        same = False
    if not same:
        raise WrongFile(existing.source, "gpus", None, ALLOWED_BLOCK)


@dataclass(frozen=True, slots=True)
class _ExistingGpus:
    """What a form has without us, or has now."""

    vendors: tuple[dict[str, object], ...] = ()
    num: str = NO_NUMBER
    vendor: str = ""
    read_only: bool = False


def _existing_gpus(existing: Document) -> _ExistingGpus:
    data = existing.data
    if not isinstance(data, dict) or not isinstance(data.get(ROOT), dict):
        raise WrongFile(existing.source, "", None, f"has no {ROOT}, so it is not the form's configuration")
    gpus = _mapping(existing, data[ROOT].get("gpus", {}), "gpus")
    value = _mapping(existing, gpus.get("value", {}), "gpus", "value")
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


def _mapping(existing: Document, value: object, *path: str) -> dict[str, object]:
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
            allowed = f"is the label of {other['limitsKey']} too; users could not tell them apart"
            raise WrongFile(sizes.source, f"{place}: label", size.label, allowed)
