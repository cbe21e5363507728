"""Size keys in a container's limits, such as ``bitfusion.io/gpu-50: 2``: parse, format, count in units.

A size is spelled by exactly one of:

- ``bitfusion.io/gpu-amount: 2``, alone for whole GPUs, or with ``gpu-percent: 50`` or ``gpu-memory: 8Gi``:
  the keys of VMware's device plugin.
- A key that explains itself: ``bitfusion.io/gpu-50: 2`` (2 GPUs × 50 %), ``bitfusion.io/gpu-8gib: 1`` or
  ``bitfusion.io/gpu-8000mib: 1``. One key is all that a form can write.
"""

from __future__ import annotations

from bitfusion_client.decimals import plain_number, shift_point
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes_names import (
    GROUP,
    RESOURCE_AMOUNT,
    RESOURCE_MEMORY,
    RESOURCE_PERCENT,
    SIZE_PREFIX,
    is_size_resource,
)
from bitfusion_client.quantities import format_mib, quantity_to_count, quantity_to_mib
from bitfusion_client.request import GpuRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

UNITS_PER_GPU = 100

ALLOWED_SIZE_KEY = (
    "is no known size; known are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 (percent), "
    "gpu-8gib and gpu-8000mib"
)
ALLOWED_PERCENT = "must be a whole number from 1 to 100"
ALLOWED_PAIR = "gpu-percent and gpu-memory exclude each other"
ALLOWED_WITH_AMOUNT = f"needs {RESOURCE_AMOUNT} beside it"
ALLOWED_ONE_KEY = "only one size may be given; there is also "
ALLOWED_TOTAL = "needs the memory of one of the pool's GPUs to be counted in units; it is not known"


def parse_sizes(limits: Mapping[str, object]) -> GpuRequest | None:
    """What a container's limits ask for, None if nothing. Raises InvalidRequest whose field is the key.

    An amount of 0 is refused: whoever wants no GPU leaves the key out.
    """
    given = {name: limits[name] for name in sorted(limits) if is_size_resource(name)}
    keys = [name for name in given if name not in (RESOURCE_AMOUNT, RESOURCE_PERCENT, RESOURCE_MEMORY)]
    counts = {
        name: quantity_to_count(given[name], name) for name in (RESOURCE_AMOUNT, *keys) if name in given
    }
    sizes = {name: _size_of_key(name) for name in keys}
    asked = list(counts)
    if len(asked) > 1:
        raise InvalidRequest(asked[1], given[asked[1]], ALLOWED_ONE_KEY + asked[0])
    pair = [name for name in (RESOURCE_PERCENT, RESOURCE_MEMORY) if name in given]
    if pair and asked and asked[0] != RESOURCE_AMOUNT:
        raise InvalidRequest(pair[0], given[pair[0]], ALLOWED_ONE_KEY + asked[0])
    if pair and RESOURCE_AMOUNT not in given:
        raise InvalidRequest(pair[0], given[pair[0]], ALLOWED_WITH_AMOUNT)
    if len(pair) > 1:
        raise InvalidRequest(RESOURCE_MEMORY, given[RESOURCE_MEMORY], ALLOWED_PAIR)
    if not asked:
        return None
    name = asked[0]
    partial, memory_mib = sizes.get(name, (None, None))
    if RESOURCE_PERCENT in pair:
        partial = _percent(given[RESOURCE_PERCENT])
    elif RESOURCE_MEMORY in pair:
        memory_mib = quantity_to_mib(given[RESOURCE_MEMORY], RESOURCE_MEMORY)
    try:
        return GpuRequest(counts[name], partial, memory_mib)
    except InvalidRequest as error:
        key = name if error.field == "gpus" else (pair or [name])[0]
        raise InvalidRequest(key, given[key], error.allowed) from None


def format_size(request: GpuRequest) -> tuple[dict[str, str], bool]:
    """The limits that spell the size of a request with one key, and whether they say it exactly.

    A fraction of a percent is rounded up. Filters, servers and the time limit have no place in limits.
    """
    amount = str(request.gpus)
    if request.memory_mib is not None:
        return {SIZE_PREFIX + format_mib(request.memory_mib).lower() + "b": amount}, True
    if request.partial is None:
        return {RESOURCE_AMOUNT: amount}, True
    whole, _, fraction = shift_point(plain_number(request.partial), 2).partition(".")
    return {f"{SIZE_PREFIX}{int(whole) + bool(fraction)}": amount}, not fraction


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


def _size_of_key(name: str) -> tuple[float | None, int | None]:
    """Share and MiB of a key that explains itself."""
    size = name[len(SIZE_PREFIX) :]
    for unit, factor in (("gib", 1024), ("mib", 1)):
        number = size[: -len(unit)]
        if size.endswith(unit) and _plain_whole(number):
            return None, int(number) * factor
    if _plain_whole(size) and 1 <= int(size) <= 100:
        return int(size) / 100, None
    raise InvalidRequest(name, name[len(GROUP) :], ALLOWED_SIZE_KEY)


def _plain_whole(text: str) -> bool:
    # no leading zeros: one size, one key
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= 15


def _percent(value: object) -> float:
    try:
        percent = quantity_to_count(value, RESOURCE_PERCENT)
    except InvalidRequest:
        percent = 0
    if not 1 <= percent <= 100:
        raise InvalidRequest(RESOURCE_PERCENT, value, ALLOWED_PERCENT)
    return percent / 100
