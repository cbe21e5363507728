"""What fits into a notebook's budget, counted as the kernel counts it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.gpu_pods.budget import cost, fits, of_each
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod.budget import Budget
from tests.client.strategies import requests

HALF, TENTH = GpuRequest(1, 0.5), GpuRequest(1, 0.1)


@pytest.mark.parametrize(
    ("budget", "held", "wanted", "units", "answer"),
    [
        (GpuRequest(1), [], GpuRequest(1), 0, True),
        (GpuRequest(1), [], GpuRequest(2), 0, False),
        (GpuRequest(1), [HALF], HALF, 0, True),
        (GpuRequest(1), [HALF, TENTH], HALF, 0, False),
        (HALF, [TENTH] * 4, TENTH, 0, True),  # tenths add up exactly
        (HALF, [TENTH] * 5, TENTH, 0, False),
        (GpuRequest(2), [GpuRequest(1, None, 8192)], GpuRequest(1), 0, True),
        (GpuRequest(1), [GpuRequest(1, None, 8192)], TENTH, 0, False),
        (GpuRequest(1, None, 8192), [GpuRequest(1, None, 4096)], GpuRequest(1, None, 4096), 50, True),
        (GpuRequest(1, None, 8192), [GpuRequest(1, None, 4096)], GpuRequest(1, None, 4097), 50, False),
        (GpuRequest(1, None, 8192), [], HALF, 50, True),
        (GpuRequest(1, None, 8192), [], HALF, 49, False),
        (GpuRequest(1, None, 8192), [], GpuRequest(1), 0, True),
    ],
)
def test_what_fits(
    budget: GpuRequest, held: list[GpuRequest], wanted: GpuRequest, units: int, answer: bool
) -> None:
    assert fits(budget, held, wanted, units) is answer


@given(requests(), requests(), st.integers(0, 10_000))
def test_it_is_counted_as_the_kernel_counts(budget: GpuRequest, request_: GpuRequest, units: int) -> None:
    of_kernel = Budget(budget, units)
    assert of_each(budget, units) == of_kernel.of_each
    assert cost(budget, request_, units) == of_kernel.cost(request_)
