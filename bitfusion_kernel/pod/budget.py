"""The arithmetic of a pod's budget: what a request counts, what is left, and what of it a kernel takes. Pure.

Everything is counted in millionths of one GPU, so that shares add up exactly; 10,000 of them are one unit of
the resource ``bitfusion.io/gpu`` (percent × GPUs).
"""

from __future__ import annotations

from bitfusion_client.errors import NoGpuGiven
from bitfusion_client.fast_imports import dataclass
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.quantities import SMALLEST_GPU_MEMORY_MIB

WHOLE = 1_000_000
UNIT = 10_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What a container of the pod may hold at once.

    Attributes:
        request: As it was asked for: for a Notebook in the form, in limits or by an annotation.
        units: The same as the scheduler counts it. Needed for budgets by memory only: nobody in the pod knows
            how much memory a GPU of the pool has. 0 if unknown: then each GPU counts as a whole one.
    """

    request: GpuRequest
    units: int

    @property
    def of_each(self) -> int:
        """What one GPU of the budget counts."""
        if self.request.memory_mib is None:
            return _share(self.request)
        return min(WHOLE, self.units * UNIT // self.request.gpus) or WHOLE

    @property
    def total(self) -> int:
        """What the whole budget counts."""
        return self.of_each * self.request.gpus

    def cost(self, request: GpuRequest) -> int:
        """What a request counts. By memory, in a budget by share, each GPU counts as a whole one."""
        if request.memory_mib is None:
            return _share(request) * request.gpus
        if self.request.memory_mib is None:
            return WHOLE * request.gpus
        return -(-request.memory_mib * self.of_each // self.request.memory_mib) * request.gpus

    def part(self, left: int, request: GpuRequest) -> GpuRequest | None:
        """What a kernel takes that was given no size: GPUs of the budget's size, or a smaller share of one.

        Args:
            left: What of the budget nobody holds.
            request: Filters, servers and time limit are taken from it.

        Returns:
            None where so little is left that nothing can be done with it.
        """
        gpus, partial, memory_mib = self.request.gpus, self.request.partial, self.request.memory_mib
        if left >= self.of_each:
            gpus = min(gpus, left // self.of_each)
        elif memory_mib is not None:
            gpus, memory_mib = 1, left * memory_mib // self.of_each
            if memory_mib < SMALLEST_GPU_MEMORY_MIB:
                return None
        else:
            percent = left // UNIT
            if percent < 1:
                return None
            gpus, partial = 1, percent / 100
        return GpuRequest(gpus, partial, memory_mib, request.filters, request.servers, request.timeout)


def _share(request: GpuRequest) -> int:
    """Of each GPU; a part of a millionth counts as one."""
    if request.partial is None:
        return WHOLE
    return max(1, -int(-round(request.partial * WHOLE, 3) // 1))


class OverBudget(NoGpuGiven):
    """More was asked for than the whole pod has, so that waiting would not help."""

    headline = "This pod's budget is smaller than that."


def check_fits(budget: Budget, request: GpuRequest) -> None:
    """Raise OverBudget if the whole budget is too small for the request."""
    if budget.cost(request) <= budget.total:
        return
    from bitfusion_client.command.command_line import format_options

    whole = GpuRequest(budget.request.gpus, budget.request.partial, budget.request.memory_mib)
    counted = ""
    if request.memory_mib is not None and budget.request.memory_mib is None:
        counted = "; by memory each GPU counts as a whole one here, so ask for a share"
    raise OverBudget(
        request,
        f"the budget of this pod is {whole.describe()}, as chosen when the notebook was made{counted}",
        f"ask for that at most (`%bitfusion request {' '.join(format_options(whole))}`; `%bitfusion request "
        "--reset` takes what is left), or stop the notebook and start one with a larger size in the form.",
    )
