"""The resource names that spell a size, ``bitfusion.io/gpu-50``: which are known, what another one meant."""

from __future__ import annotations

from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes_names import (
    RESOURCE_AMOUNT,
    RESOURCE_MEMORY,
    RESOURCE_PERCENT,
    RESOURCE_UNITS,
    SIZE_PREFIX,
)

NOT_A_SIZE = "is no size of Bitfusion"
ALL_KEYS = (
    "there are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 (percent), gpu-8gib and "
    "gpu-8000mib"
)
UNITS_ARE_COUNTED = "is what the cluster counts by, and is written by the pod injector alone"
WRITE_A_SIZE = f"Write {RESOURCE_AMOUNT}: 1 for a whole GPU, {SIZE_PREFIX}50: 1 for half of one."
LIST_OF_FORM = "If the form offers this one, its administrator has to correct the list."

# What follows ``gpu``, in small letters and with ``-`` for ``_``, and the key that is meant by it. The policy
# has the same words.
MEANT_WORDS = {
    **dict.fromkeys(("", "s", "amounts", "num", "number", "count", "quantity"), RESOURCE_AMOUNT),
    **dict.fromkeys(("percents", "percentage", "pct", "share", "partial"), RESOURCE_PERCENT),
    **dict.fromkeys(("mem", "ram", "vram"), RESOURCE_MEMORY),
    **dict.fromkeys(("half", "0.5", ".5"), SIZE_PREFIX + "50"),
    **dict.fromkeys(("quarter", "0.25", ".25"), SIZE_PREFIX + "25"),
    "amount": RESOURCE_AMOUNT,
    "percent": RESOURCE_PERCENT,
    "memory": RESOURCE_MEMORY,
}
PERCENT_WORDS = ("", "%", "p", "pct", "percent")
MEMORY_WORDS = {
    **dict.fromkeys(("g", "gi", "gb", "gib"), "gib"),
    **dict.fromkeys(("m", "mi", "mb", "mib"), "mib"),
}
LONGEST_MEANT = 24  # characters after ``gpu`` beyond which nothing is guessed
MOST_DIGITS = 15


def size_of_key(name: str) -> tuple[float | None, int | None] | None:
    """Share and MiB of a key that explains itself, ``bitfusion.io/gpu-50``; None if it is none."""
    size = name[len(SIZE_PREFIX) :] if name.startswith(SIZE_PREFIX) else ""
    if _plain_whole(size):
        return (int(size) / 100, None) if 1 <= int(size) <= 100 else None
    number, factor = size[:-3], {"gib": 1024, "mib": 1}.get(size[-3:])
    return (None, int(number) * factor) if factor and _plain_whole(number) else None


def is_known_key(name: str) -> bool:
    """Whether a resource is one of those by which a size is asked for."""
    return name in (RESOURCE_AMOUNT, RESOURCE_PERCENT, RESOURCE_MEMORY) or size_of_key(name) is not None


def meant_key(name: str) -> str:
    """The known key that was probably meant by another one (`is_gpu_resource`); empty if none was."""
    rest = name[len(RESOURCE_UNITS) :].lower().replace("_", "-")
    if len(rest) > LONGEST_MEANT:
        return ""
    if rest.startswith("s-"):
        rest = rest[1:]
    rest = rest.strip("-")
    if rest in MEANT_WORDS:
        return MEANT_WORDS[rest]
    number = rest.lstrip("0")
    unit = number.lstrip("0123456789")
    number = number[: len(number) - len(unit)]
    unit = unit.lstrip("-")
    if unit in MEMORY_WORDS and 1 <= len(number) <= MOST_DIGITS:
        return SIZE_PREFIX + number + MEMORY_WORDS[unit]
    if unit in PERCENT_WORDS and number and 1 <= int(number) <= 100:
        return SIZE_PREFIX + number
    return _closest(rest)


def unknown_key(name: str, value: object) -> WrongKey:
    """The error that tells a person that a key is none, and which one to write."""
    if name == RESOURCE_UNITS:
        return WrongKey(name, value, f"{NOT_A_SIZE}: it {UNITS_ARE_COUNTED}", WRITE_A_SIZE)
    meant = meant_key(name)
    told = f"did you mean {meant}?" if meant else ALL_KEYS
    return WrongKey(name, value, f"{NOT_A_SIZE}; {told}", LIST_OF_FORM)


def _closest(rest: str) -> str:
    from difflib import get_close_matches  # brings re; only for a key that is wrong

    words = ("amount", "percent", "memory")
    return "".join(SIZE_PREFIX + word for word in get_close_matches(rest, words, 1, 0.7))


def _plain_whole(text: str) -> bool:
    # no leading zeros: one size, one key
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= MOST_DIGITS
