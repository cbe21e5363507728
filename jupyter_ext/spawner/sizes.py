"""The admin's list of GPU sizes, ``sizes.yaml``: the one source of every form.

`Size.request` says what a size is in the vocabulary of the whole project, so a form that can show a number of
GPUs, a profile for instance, needs no other list.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.names import GROUP
from bitfusion_client.kubernetes.sizes import format_size
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import parse_memory
from bitfusion_client.request.request_rules import ALLOWED_GPUS, MOST_GPUS
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import Document

LONGEST_LABEL = 60
LONGEST_KEY = 63  # of a resource name's part after the slash, as Kubernetes has it

SIZE_FIELDS = ("label", "number", "share", "memory", "default", "gpus")
VENDOR_FIELDS = ("label", "key")
FILE_FIELDS = ("sizes", "other_vendors")

NEEDS_GPU_MEMORY = (
    "Sizes by memory need the injector's option --gpu-memory (the memory of a GPU of the pool): without it "
    "their "
    "pods are refused."
)

ALLOWED_LABEL = f"must be one line of text, at most {LONGEST_LABEL} characters"
IN_QUOTES = "; YAML does not read this as text: put it in quotes"
ALLOWED_SHARE = "must be a whole number of percent from 1 % to 100 %"
ALLOWED_MEMORY = "must be an amount of memory with its unit, at least 1 MiB, such as 8Gi or 8000Mi"
ALLOWED_TOGETHER = f"makes more than {MOST_GPUS} GPUs with this size's number"
ALLOWED_NUMBERED = "; write number instead of gpus to make it a size of its own"
ALLOWED_DEFAULT = "must be true or false"
ALLOWED_ONE_DEFAULT = "can be true for only one size; it already is for "
ALLOWED_EITHER = "cannot be combined with share: a size is either a share or an amount of memory"
ALLOWED_KEY = "must be the name of a resource with its domain, such as nvidia.com/gpu"
ALLOWED_OURS = "belongs to Bitfusion; give a share or memory under sizes instead"
ALLOWED_PAIR_KEY = (
    "cannot be used in the form, whose notebook list fails with error 500 on this key; give a share or "
    "memory "
    "under sizes instead"
)


@dataclass(frozen=True, slots=True)
class Size:
    """One size: what users read, and what they then ask for, with the number of GPUs as it is preselected.

    `number` of the GPUs belong to the size itself; the form's number, `preselected`, multiplies them.
    """

    label: str
    request: GpuRequest
    default: bool = False
    number: int = 1

    @property
    def key(self) -> str:
        """The resource name that says this size by itself, ``bitfusion.io/gpu-50`` or ``gpu-3x50``."""
        return next(iter(format_size(self.request, self.number)[0]))

    @property
    def preselected(self) -> int:
        """The number in the form."""
        return self.request.gpus // self.number


@dataclass(frozen=True, slots=True)
class Vendor:
    """An entry of the dropdown that is not ours."""

    label: str
    key: str


@dataclass(frozen=True, slots=True)
class SizeList:
    """A checked list. `other_vendors` is None where the admin leaves them to the form as it is.

    `places` tells where each size stands in the file, for messages: ``size 2 (line 7)``.
    """

    source: str
    sizes: tuple[Size, ...]
    other_vendors: tuple[Vendor, ...] | None
    places: tuple[str, ...]

    @property
    def default(self) -> Size | None:
        """The size that is preselected."""
        return next((size for size in self.sizes if size.default), None)

    def advice(self) -> list[str]:
        """Lines about what has to be set elsewhere for all sizes to be had."""
        by_memory = any(size.request.memory_mib is not None for size in self.sizes)
        return ["", NEEDS_GPU_MEMORY] if by_memory else []


def example() -> str:
    """The text of a starter ``sizes.yaml``."""
    return (resources.files(__package__) / "sizes-example.yaml").read_text(encoding="utf-8")


def parse_sizes(document: Document) -> SizeList:
    """The sizes of a file. Raises WrongFile: file, entry with its line, value, what is allowed."""
    data = _fields(document, (), "", document.data, FILE_FIELDS)
    entries = _list(document, "sizes", data.get("sizes"))
    if not entries:
        raise WrongFile(document.source, "sizes", None, "must have at least one size")
    places = tuple(_place(document, "size", "sizes", index) for index in range(len(entries)))
    sizes = tuple(_size(document, places[index], index, entry) for index, entry in enumerate(entries))
    vendors = None
    if data.get("other_vendors") is not None:
        listed = _list(document, "other_vendors", data["other_vendors"])
        vendors = tuple(_vendor(document, index, entry) for index, entry in enumerate(listed))
    _check_together(document, places, sizes, vendors or ())
    return SizeList(document.source, sizes, vendors, places)


def as_read(label: str) -> str:
    """A label without what users do not notice, capitals and blanks: equal ones cannot be told apart."""
    return " ".join(label.casefold().split())


def _check_vendor_key(source: str, place: str, key: object) -> str:
    """The key of another vendor. Raises WrongFile also for keys of Bitfusion, which only sizes may have."""
    if isinstance(key, str) and key.startswith(GROUP):
        pair = key in (GROUP + "gpu-memory", GROUP + "gpu-percent")
        raise WrongFile(source, f"{place}: key", key, ALLOWED_PAIR_KEY if pair else ALLOWED_OURS)
    domain, slash, name = key.partition("/") if isinstance(key, str) else ("", "", "")
    plain = domain.replace(".", "").replace("-", "") + name.replace(".", "").replace("-", "").replace("_", "")
    if not (slash and domain and name and plain.isascii() and plain.isalnum() and len(name) <= LONGEST_KEY):
        raise WrongFile(source, f"{place}: key", key, ALLOWED_KEY)
    assert isinstance(key, str)
    return key


def _size(document: Document, place: str, index: int, entry: object) -> Size:
    source = document.source
    data = _fields(document, ("sizes", index), place, entry, SIZE_FIELDS)
    label = _label(source, place, data)
    default = data.get("default", False)
    if not isinstance(default, bool):
        raise WrongFile(source, f"{place}: default", default, ALLOWED_DEFAULT)
    share, memory = data.get("share"), data.get("memory")
    partial = memory_mib = None
    if "share" in data:
        percent = _percent(source, place, share)
        # the whole of a GPU has one spelling
        partial = percent / 100 if percent < 100 else None
    if "memory" in data:
        if "share" in data:
            raise WrongFile(source, f"{place}: memory", memory, ALLOWED_EITHER)
        memory_mib = _memory(source, place, memory)
    number, gpus = (_count(source, place, name, data.get(name, 1)) for name in ("number", "gpus"))
    if number * gpus > MOST_GPUS:
        raise WrongFile(source, f"{place}: gpus", gpus, ALLOWED_TOGETHER)
    try:
        request = GpuRequest(number * gpus, partial, memory_mib)
    except InvalidRequest:
        raise WrongFile(source, f"{place}: memory", memory, ALLOWED_MEMORY) from None
    return Size(label, request, default, number)


def _count(source: str, place: str, field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_GPUS:
        raise WrongFile(source, f"{place}: {field}", value, ALLOWED_GPUS)
    return value


def _percent(source: str, place: str, share: object) -> int:
    text = str(share) if isinstance(share, (str, int)) and not isinstance(share, bool) else ""
    number = text.strip()
    if number.endswith("%"):
        number = number[:-1].rstrip()
    percent = int(number) if number.isascii() and number.isdigit() and len(number) <= 3 else 0
    if not 1 <= percent <= 100:
        raise WrongFile(source, f"{place}: share", share, ALLOWED_SHARE)
    return percent


def _memory(source: str, place: str, memory: object) -> int:
    # a bare number would be MiB to the client, bytes to Kubernetes and GiB to most people
    if not isinstance(memory, str) or memory.strip().isdigit():
        raise WrongFile(source, f"{place}: memory", memory, ALLOWED_MEMORY)
    try:
        return parse_memory(memory)
    except InvalidRequest:
        raise WrongFile(source, f"{place}: memory", memory, ALLOWED_MEMORY) from None


def _vendor(document: Document, index: int, entry: object) -> Vendor:
    place = _place(document, "other vendor", "other_vendors", index)
    data = _fields(document, ("other_vendors", index), place, entry, VENDOR_FIELDS)
    label = _label(document.source, place, data)
    if "key" not in data:
        raise WrongFile(document.source, place, None, "has no key")
    return Vendor(label, _check_vendor_key(document.source, place, data["key"]))


def _check_together(
    document: Document, places: tuple[str, ...], sizes: tuple[Size, ...], vendors: tuple[Vendor, ...]
) -> None:
    entries = [
        (place, size.label, size.key, ALLOWED_NUMBERED if size.preselected > 1 else "")
        for place, size in zip(places, sizes, strict=True)
    ]
    for index, vendor in enumerate(vendors):
        place = _place(document, "other vendor", "other_vendors", index)
        entries.append((place, vendor.label, vendor.key, ""))
    labels: dict[str, str] = {}
    keys: dict[str, str] = {}
    for place, label, key, advice in entries:
        read = as_read(label)
        if read in labels:
            allowed = f"is also the label of {labels[read]}; users could not tell them apart"
            raise WrongFile(document.source, f"{place}: label", label, allowed)
        if key in keys:
            same = "the same size as" if key.startswith(GROUP) else "the same key as"
            allowed = f"has {same} {keys[key]}: {key}; the form can offer it only once{advice}"
            raise WrongFile(document.source, f"{place}:", label, allowed)
        labels[read] = keys[key] = place
    defaults = [place for place, size in zip(places, sizes, strict=True) if size.default]
    if len(defaults) > 1:
        allowed = ALLOWED_ONE_DEFAULT + defaults[0]
        raise WrongFile(document.source, f"{defaults[1]}: default", True, allowed)


def _fields(
    document: Document, path: tuple[str | int, ...], place: str, entry: object, allowed: tuple[str, ...]
) -> dict[str, object]:
    known = ", ".join(allowed)
    if not isinstance(entry, dict):
        where = f"{place}:" if place else ""
        raise WrongFile(document.source, where, entry, f"must be a mapping with these fields: {known}")
    for name in entry:
        if name not in allowed:
            line = document.line(*path, name) if isinstance(name, str) else document.line(*path)
            where = place.partition(" (")[0] + f" (line {line}):" if place else f"line {line}:"
            raise WrongFile(document.source, where, name, f"is not a field; the fields are {known}")
    return entry


def _list(document: Document, name: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise WrongFile(document.source, f"{name}:", value, "must be a list")
    return value


def _label(source: str, place: str, data: dict[str, object]) -> str:
    if "label" not in data:
        raise WrongFile(source, place, None, "has no label")
    label = data["label"]
    if not isinstance(label, str):
        plain = label is not None and not isinstance(label, (dict, list))
        allowed = ALLOWED_LABEL + (IN_QUOTES if plain else "")
        raise WrongFile(source, f"{place}: label", label, allowed)
    if not label.strip() or not label.isprintable():
        raise WrongFile(source, f"{place}: label", label, ALLOWED_LABEL)
    if len(label) > LONGEST_LABEL:
        raise WrongFile(source, f"{place}: label", label, ALLOWED_LABEL)
    return label.strip()


def _place(document: Document, name: str, field: str, index: int) -> str:
    return f"{name} {index + 1} (line {document.line(field, index)})"
