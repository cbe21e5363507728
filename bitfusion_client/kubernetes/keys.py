"""The resource names that spell a size, ``bitfusion.io/gpu-50``: which are known, what another one meant.

A name may bring a number of GPUs along, ``bitfusion.io/gpu-3x50``, since Kubeflow's form offers no number but
1, 2, 4 and 8. Its value multiplies that: 2 of this one are 6 GPUs × 50 %. One size, one name: a number of 1
and leading zeros are refused.
"""

from __future__ import annotations

from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes.names import (
    RESOURCE_AMOUNT,
    RESOURCE_MEMORY,
    RESOURCE_PERCENT,
    RESOURCE_UNITS,
    SIZE_PREFIX,
)
from bitfusion_client.request.request_rules import ALLOWED_GPUS, MOST_GPUS

NOT_A_SIZE = "is not a Bitfusion size"
ALL_KEYS = (
    "sizes are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 (percent), gpu-8gib and "
    f"gpu-8000mib, also for 2 to {MOST_GPUS} GPUs at once: gpu-3x50"
)
UNITS_ARE_COUNTED = "is what the cluster counts; only the pod injector may write it"
WRITE_A_SIZE = f"Write {RESOURCE_AMOUNT}: 1 for a whole GPU, {SIZE_PREFIX}50: 1 for half of one."
LIST_OF_FORM = "If the form offers it, ask your administrator to correct the form's list."

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
SIGN = "x"  # between the number of GPUs and the size of each
MEANT_SIGNS = (SIGN, "*", "×")
LONGEST_MEANT = 24  # characters after ``gpu`` beyond which nothing is guessed
MOST_DIGITS = 15


def size_of_key(name: str) -> tuple[int, float | None, int | None] | None:
    """GPUs, and share and MiB of each, of a key that explains itself, ``bitfusion.io/gpu-50``.

    None if it is none. Neither share nor MiB: whole GPUs, which with their number are ``gpu-3x100``.
    """
    size = name[len(SIZE_PREFIX) :] if name.startswith(SIZE_PREFIX) else ""
    gpus = 1
    number, sign, rest = size.partition(SIGN)
    if sign:
        if not _plain_whole(number) or not 2 <= int(number) <= MOST_GPUS:
            return None
        gpus, size = int(number), rest
    if _plain_whole(size):
        if not 1 <= int(size) <= 100:
            return None
        return gpus, None if gpus > 1 and size == "100" else int(size) / 100, None
    number, factor = size[:-3], {"gib": 1024, "mib": 1}.get(size[-3:])
    return (gpus, None, int(number) * factor) if factor and _plain_whole(number) else None


def size_prefix(gpus: int) -> str:
    """What the key of a size begins with that brings so many GPUs along."""
    return SIZE_PREFIX if gpus == 1 else f"{SIZE_PREFIX}{gpus}{SIGN}"


def allowed_count(name: str) -> str:
    """What the value of a key may be, for messages: all GPUs together are at most `MOST_GPUS`."""
    gpus = (size_of_key(name) or (1,))[0]
    if gpus == 1:
        return ALLOWED_GPUS
    return f"must be a whole number from 1 to {MOST_GPUS // gpus}, each of {gpus} GPUs"


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
    number, size = _factors(rest)
    key = _meant_size(size)
    return _meant_times(int(number), key) if number else key or _closest(rest)


def unknown_key(name: str, value: object) -> WrongKey:
    """The error that tells a person that a key is none, and which one to write."""
    if name == RESOURCE_UNITS:
        return WrongKey(name, value, f"{NOT_A_SIZE}: it {UNITS_ARE_COUNTED}", WRITE_A_SIZE)
    meant = meant_key(name)
    told = f"did you mean {meant}?" if meant else ALL_KEYS
    return WrongKey(name, value, f"{NOT_A_SIZE}; {told}", LIST_OF_FORM)


def _factors(rest: str) -> tuple[str, str]:
    """Number and size of ``3*50`` and of ``50%x3``; an empty number if there are no two factors.

    ``50x3`` is a known key, 50 GPUs × 3 %, so that two numbers are always taken in this order.
    """
    for sign in MEANT_SIGNS:
        first, found, last = rest.partition(sign)
        first, last = first.rstrip("-"), last.lstrip("-")
        if found and _is_whole(first):
            return first, last
        if first and _is_whole(last):
            return last, first
    return "", rest


def _meant_size(size: str) -> str:
    """The known key of one GPU that was meant by what follows ``gpu``; empty if none was."""
    if size in MEANT_WORDS:
        return MEANT_WORDS[size]
    number = size.lstrip("0")
    unit = number.lstrip("0123456789")
    number = number[: len(number) - len(unit)]
    unit = unit.lstrip("-")
    if unit in MEMORY_WORDS and 1 <= len(number) <= MOST_DIGITS:
        return SIZE_PREFIX + number + MEMORY_WORDS[unit]
    if unit in PERCENT_WORDS and number and 1 <= int(number) <= 100:
        return SIZE_PREFIX + number
    return ""


def _meant_times(gpus: int, key: str) -> str:
    if key in ("", RESOURCE_PERCENT, RESOURCE_MEMORY) or not 1 <= gpus <= MOST_GPUS:
        return ""
    if gpus == 1:
        return key
    return size_prefix(gpus) + ("100" if key == RESOURCE_AMOUNT else key[len(SIZE_PREFIX) :])


def _closest(rest: str) -> str:
    from difflib import get_close_matches  # brings re; only for a key that is wrong

    words = ("amount", "percent", "memory")
    return "".join(SIZE_PREFIX + word for word in get_close_matches(rest, words, 1, 0.7))


def _plain_whole(text: str) -> bool:
    # no leading zeros: one size, one key
    return _is_whole(text) and text[0] != "0" and len(text) <= MOST_DIGITS


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()
