"""Whether a request still fits into a notebook's budget, beside what its GPU pods hold. Pure.

Counted as the kernel counts for its own kernels (`bitfusion_kernel/pod/budget.py`): in millionths of a GPU,
so that shares add up exactly. By memory, in a budget by share, each GPU counts as a whole one.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bitfusion_client.request.gpu_request import GpuRequest

WHOLE = 1_000_000
UNIT = 10_000  # a unit of ``bitfusion.io/gpu``, a percent of a GPU


def fits(budget: GpuRequest, held: Iterable[GpuRequest], wanted: GpuRequest, units: int = 0) -> bool:
    """Whether a notebook with this budget may take what is wanted beside what it holds.

    Args:
        budget: The size that the notebook was made with.
        held: What its GPU pods hold.
        wanted: What is asked for.
        units: The budget in percent × GPUs, which only a budget by memory needs; 0: each of its GPUs counts
            as a whole one.
    """
    total = of_each(budget, units) * budget.gpus
    return sum(cost(budget, each, units) for each in held) + cost(budget, wanted, units) <= total


def of_each(budget: GpuRequest, units: int = 0) -> int:
    """What one GPU of a budget counts."""
    if budget.memory_mib is None:
        return _share(budget)
    return min(WHOLE, units * UNIT // budget.gpus) or WHOLE


def cost(budget: GpuRequest, request: GpuRequest, units: int = 0) -> int:
    """What a request counts in a budget."""
    if request.memory_mib is None:
        return _share(request) * request.gpus
    if budget.memory_mib is None:
        return WHOLE * request.gpus
    return -(-request.memory_mib * of_each(budget, units) // budget.memory_mib) * request.gpus


def _share(request: GpuRequest) -> int:
    """Of each GPU; a part of a millionth counts as one."""
    if request.partial is None:
        return WHOLE
    return max(1, -int(-round(request.partial * WHOLE, 3) // 1))
