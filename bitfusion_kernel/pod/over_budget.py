"""The error for a size that the pod's budget can never give."""

from __future__ import annotations

from bitfusion_client.errors import NoGpuGiven
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.pod.budget import Budget


class OverBudget(NoGpuGiven):
    """More was asked for than the whole pod has, so that waiting would not help."""

    headline = "This pod's budget is smaller than that."


def check_fits(budget: Budget, request: GpuRequest) -> None:
    """Raise OverBudget if the whole budget is too small for the request."""
    if budget.cost(request) <= budget.total:
        return
    from bitfusion_client.command.command_line import format_options
    from bitfusion_client.request.gpu_request import GpuRequest

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
