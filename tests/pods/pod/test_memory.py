"""The variables that keep a GPU pod's frameworks to their share, by rule and request."""

from __future__ import annotations

import pytest

from bitfusion_client.gpu_memory.limits import VARIABLE
from bitfusion_client.gpu_pods.size_rules import parse_rule, rule_for
from bitfusion_client.gpu_pods.values import Place
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.pod.memory import memory_variables

JAX = "XLA_PYTHON_CLIENT_MEM_FRACTION"
SERVES = {"whole": True, "share": True, "memory": True}


def variables(request: GpuRequest, environ: dict[str, str], **rule: object) -> dict[str, str]:
    data = {"name": "any", "serves": SERVES, **rule}
    return memory_variables(request, rule_for(request, [parse_rule(data, Place("", ""))]), environ)


@pytest.mark.parametrize(
    ("request_", "rule", "limits", "jax"),
    [
        (GpuRequest(1, 0.5), {"gpu_memory": "16000M"}, "0.4664", "0.4664"),
        (GpuRequest(2, 0.25), {"gpu_memory": "40Gi"}, "0.2375,0.2375", "0.2375"),
        (GpuRequest(1, memory_mib=8192), {"gpu_memory": "40Gi"}, "0.1875", "0.1875"),
        (GpuRequest(1, 0.5), {}, "0.4687", "0.4687"),  # of a GPU of unknown size
        (GpuRequest(2, memory_mib=4096), {}, "3584MiB,3584MiB", None),
    ],
)
def test_a_share_that_nobody_else_keeps_is_told_to_the_frameworks(
    request_: GpuRequest, rule: dict[str, object], limits: str, jax: str | None
) -> None:
    found = variables(request_, {}, isolated=False, **rule)
    assert (found[VARIABLE], found.get(JAX)) == (limits, jax)
    assert found["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert "PYTHONPATH" not in found  # the hook's folder is the pod's


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (GpuRequest(1, 0.5), {"keeps_memory": True}),
        (GpuRequest(1, memory_mib=4096), {"keeps_memory": True}),
        (GpuRequest(1), {}),
        (GpuRequest(2, 1.0), {}),
    ],
)
def test_whole_gpus_and_kept_ones_have_no_limit(request_: GpuRequest, rule: dict[str, object]) -> None:
    assert variables(request_, {}, **rule) == {}
    assert variables(request_, {VARIABLE: "0.2"}, **rule) == {VARIABLE: ""}, "nor inherit one"
