"""The variables by which a GPU pod's frameworks keep to their share of its GPUs' memory. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_memory.limits import amount_variables, fraction_variables, framework_fraction
from bitfusion_client.gpu_pods.size_rules import is_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.gpu_pods.size_rules import FilledRule
    from bitfusion_client.request.gpu_request import GpuRequest

ASSUMED_MIB = 16384
"""Of a GPU that nobody has said the memory of, to take out of a share what CUDA needs beside it.

That of the smallest cards of data centres; on a larger one some more is left free. Rules say `gpu_memory`.
"""


def memory_variables(request: GpuRequest, rule: FilledRule, environ: Mapping[str, str]) -> dict[str, str]:
    """For the program of a request; none for whole GPUs, and where somebody else keeps it to its share.

    The agent adds the hook, `limits.hook_variables`, which lies elsewhere in each pod.

    Args:
        request: What the pod holds.
        rule: By which it was made.
        environ: What the program gets besides.
    """
    total, gpus = rule.rule.gpu_memory, request.gpus
    if rule.keeps_memory or is_whole(request):
        return fraction_variables([1.0] * gpus, environ)
    if request.memory_mib is not None and total is None:
        return amount_variables(request.memory_mib, gpus)
    total = total or ASSUMED_MIB
    return fraction_variables([framework_fraction(request.memory_per_gpu(total), total)] * gpus, environ)
