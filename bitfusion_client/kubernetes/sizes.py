"""Size keys in a container's limits, such as ``bitfusion.io/gpu-50: 2``: parse, format, count in units.

A size is spelled by exactly one of:

- ``bitfusion.io/gpu-amount: 2``, alone for whole GPUs, or with ``gpu-percent: 50`` or ``gpu-memory: 8Gi``:
  the keys of VMware's device plugin.
- A key that explains itself: ``bitfusion.io/gpu-50: 2`` (2 GPUs × 50 %), ``bitfusion.io/gpu-8gib: 1`` or
  ``bitfusion.io/gpu-8000mib: 1``. One key is all that a form can write.
- Such a key that brings a number of GPUs along, which the value multiplies: ``bitfusion.io/gpu-3x50: 2`` is
  6 GPUs × 50 %, ``bitfusion.io/gpu-3x100: 1`` 3 whole ones.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, WrongKey
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.keys import allowed_count, size_of_key, size_prefix, unknown_key
from bitfusion_client.kubernetes.names import (
    RESOURCE_AMOUNT,
    RESOURCE_MEMORY,
    RESOURCE_PERCENT,
    is_size_resource,
)
from bitfusion_client.request.decimals import plain_number, shift_point
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import (
    SMALLEST_GPU_MEMORY_MIB,
    format_mib,
    parse_quantity,
    quantity_to_count,
    quantity_to_mib,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS_PER_GPU = 100

ALLOWED_PERCENT = "must be a whole number from 1 to 100"
EXCLUDED = f"cannot be combined with {RESOURCE_PERCENT}"
LEAVE_ONE = "Remove one of the two."
NEEDS_AMOUNT = f"also needs {RESOURCE_AMOUNT}"
ADD_AMOUNT = f"Add {RESOURCE_AMOUNT}: 1."
SECOND_SIZE = "is a second size in addition to "
KEEP_ONE = "Keep one of them."
BYTES = "without a unit the value is in bytes: "
ALLOWED_TOTAL = "cannot be converted to units, because the memory of the pool's GPUs is not known"


def parse_sizes(limits: Mapping[str, object]) -> GpuRequest | None:
    """What a container's limits ask for, None if nothing. Raises InvalidRequest whose field is the key.

    An amount of 0 is refused: whoever wants no GPU leaves the key out.
    """
    given = {name: limits[name] for name in sorted(limits) if is_size_resource(name)}
    sizes: dict[str, tuple[int, float | None, int | None]] = {}
    for name in given:
        if name not in (RESOURCE_PERCENT, RESOURCE_MEMORY):
            size = (1, None, None) if name == RESOURCE_AMOUNT else size_of_key(name)
            if size is None:
                raise unknown_key(name, given[name])
            sizes[name] = size
    asked = sorted(sizes, key=lambda name: name != RESOURCE_AMOUNT)  # it comes first
    if len(asked) > 1:
        raise WrongKey(asked[1], given[asked[1]], SECOND_SIZE + asked[0], KEEP_ONE)
    pair = [name for name in (RESOURCE_PERCENT, RESOURCE_MEMORY) if name in given]
    if pair and asked and asked[0] != RESOURCE_AMOUNT:
        raise WrongKey(pair[0], given[pair[0]], SECOND_SIZE + asked[0], KEEP_ONE)
    if len(pair) > 1:
        raise WrongKey(RESOURCE_MEMORY, given[RESOURCE_MEMORY], EXCLUDED, LEAVE_ONE)
    if pair and not asked:
        raise WrongKey(pair[0], given[pair[0]], NEEDS_AMOUNT, ADD_AMOUNT)
    if not asked:
        return None
    name = asked[0]
    each, partial, memory_mib = sizes[name]
    gpus = each * _count(name, given[name])
    if RESOURCE_PERCENT in pair:
        partial = _percent(given[RESOURCE_PERCENT])
    elif RESOURCE_MEMORY in pair:
        memory_mib = _memory(given[RESOURCE_MEMORY])
    try:
        return GpuRequest(gpus, partial, memory_mib)
    except InvalidRequest as error:
        if error.field == "gpus":
            raise InvalidRequest(name, given[name], allowed_count(name)) from None
        key = (pair or [name])[0]
        raise InvalidRequest(key, given[key], error.allowed) from None


def format_size(request: GpuRequest, each: int = 1) -> tuple[dict[str, str], bool]:
    """The limits that spell the size of a request with one key, and whether they say it exactly.

    `each` are the GPUs that the key brings along, a divisor of the request's; the value is how often.
    A fraction of a percent is rounded up. Filters, servers and the time limit have no place in limits.
    """
    amount = str(request.gpus // each)
    prefix = size_prefix(each)
    if request.memory_mib is not None:
        return {prefix + format_mib(request.memory_mib).lower() + "b": amount}, True
    if request.partial is None:
        return {RESOURCE_AMOUNT if each == 1 else prefix + "100": amount}, True
    whole, _, fraction = shift_point(plain_number(request.partial), 2).partition(".")
    return {f"{prefix}{int(whole) + bool(fraction)}": amount}, not fraction


def units(request: GpuRequest, total_mib: int | None = None) -> int:
    """``bitfusion.io/gpu`` of a request: percent × GPUs, rounded up; 100 are one whole GPU.

    Args:
        request: The request.
        total_mib: Memory of one GPU of the pool. Needed for requests by memory.

    Raises:
        InvalidRequest: By memory, and `total_mib` is unknown or smaller than what is asked for.
    """
    if request.memory_mib is None:
        share = 1.0 if request.partial is None else request.partial
        exact = round(share * UNITS_PER_GPU * request.gpus, 6)  # as for memory: 0.29 × 100 is 29
        return max(1, -int(-exact // 1))
    if not total_mib or total_mib < 1:
        raise InvalidRequest("memory_mib", request.memory_mib, ALLOWED_TOTAL, RESOURCE_MEMORY)
    if request.memory_mib > total_mib:
        allowed = f"must be at most {total_mib} MiB, the memory of one GPU"
        raise InvalidRequest("memory_mib", request.memory_mib, allowed, RESOURCE_MEMORY)
    return -(-request.memory_mib * request.gpus * UNITS_PER_GPU // total_mib)


def _count(name: str, value: object) -> int:
    try:
        return quantity_to_count(value, name)
    except InvalidRequest:
        raise InvalidRequest(name, value, allowed_count(name)) from None


def _percent(value: object) -> float:
    try:
        percent = quantity_to_count(value, RESOURCE_PERCENT)
    except InvalidRequest:
        percent = 0
    if not 1 <= percent <= 100:
        meant = _meant_percent(value)
        raise InvalidRequest(RESOURCE_PERCENT, value, ALLOWED_PERCENT + (f"; write {meant}" if meant else ""))
    return percent / 100


def _meant_percent(value: object) -> str:
    """The whole percent of ``50%`` and of ``0.5``; empty if it is neither."""
    words = value.strip() if isinstance(value, str) else value
    is_share = not (isinstance(words, str) and words.endswith("%"))
    try:
        numerator, denominator = parse_quantity(words if is_share else str(words)[:-1].rstrip())
    except ValueError:
        return ""
    if is_share:
        numerator *= 100
    percent, rest = divmod(numerator, denominator)
    return str(percent) if not rest and 1 <= percent <= (99 if is_share else 100) else ""


def _memory(value: object) -> int:
    try:
        return quantity_to_mib(value, RESOURCE_MEMORY)
    except InvalidRequest as error:
        meant = _meant_memory(value)
        raise InvalidRequest(RESOURCE_MEMORY, value, error.allowed + meant) from None


def _meant_memory(value: object) -> str:
    """The advice for ``8192``, which are bytes, and for ``8GB``; empty if none can be given."""
    words = "".join(value.split()) if isinstance(value, str) else str(value)
    unit = words.lstrip("0123456789")
    number = words[: len(words) - len(unit)]
    if not 1 <= len(number) <= 9 or not int(number):
        return ""
    if not unit:
        # who leaves the unit out means what a GPU can have
        unit = "Gi" if int(number) < SMALLEST_GPU_MEMORY_MIB else "Mi"
        return f"; {BYTES}write {number}{unit}"
    meant = unit.lower()
    meant = meant[:-1] if meant.endswith("b") else meant
    if meant in ("m", "g", "t", "mi", "gi", "ti"):
        return f"; write {number}{meant[0].upper()}{meant[1:]}"
    return ""
