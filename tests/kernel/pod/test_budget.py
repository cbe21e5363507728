"""The arithmetic of a pod's budget, in tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import BitfusionError
from bitfusion_client.kubernetes.sizes import units
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod.budget import UNIT, WHOLE, Budget, OverBudget, check_fits

ONE = Budget(GpuRequest(1), 100)
HALF = Budget(GpuRequest(1, 0.5), 50)
TWO = Budget(GpuRequest(2), 200)
TWO_HALVES = Budget(GpuRequest(2, 0.5), 100)
EIGHT_GIB = Budget(GpuRequest(1, memory_mib=8192), 51)
TWO_EIGHT_GIB = Budget(GpuRequest(2, memory_mib=8192), 102)
UNKNOWN_GIB = Budget(GpuRequest(1, memory_mib=8192), 0)


@pytest.mark.parametrize(
    ("budget", "total"),
    [
        (ONE, 1_000_000),
        (HALF, 500_000),
        (TWO, 2_000_000),
        (TWO_HALVES, 1_000_000),
        (EIGHT_GIB, 510_000),
        (TWO_EIGHT_GIB, 1_020_000),
        (UNKNOWN_GIB, 1_000_000),
        (Budget(GpuRequest(1, memory_mib=8192), 700), 1_000_000),
        (Budget(GpuRequest(1, 0.29), 29), 290_000),
    ],
)
def test_what_a_budget_counts(budget: Budget, total: int) -> None:
    assert budget.total == total
    assert budget.cost(budget.request) == total


@pytest.mark.parametrize(
    ("budget", "request_", "cost"),
    [
        (ONE, GpuRequest(1, 0.5), 500_000),
        (ONE, GpuRequest(2, 0.5), 1_000_000),
        (TWO, GpuRequest(3, 0.25), 750_000),
        # nobody in the pod knows how much memory a GPU has
        (TWO, GpuRequest(1, memory_mib=4096), 1_000_000),
        (EIGHT_GIB, GpuRequest(1, memory_mib=4096), 255_000),
        (EIGHT_GIB, GpuRequest(1, memory_mib=1), 63),  # rounded up
        (EIGHT_GIB, GpuRequest(1, 0.5), 500_000),
        (TWO_EIGHT_GIB, GpuRequest(2, memory_mib=2048), 255_000),
    ],
)
def test_what_a_request_counts(budget: Budget, request_: GpuRequest, cost: int) -> None:
    assert budget.cost(request_) == cost


@pytest.mark.parametrize(
    ("budget", "held", "part"),
    [
        (ONE, 0, GpuRequest(1)),
        (ONE, 500_000, GpuRequest(1, 0.5)),
        (ONE, 990_000, GpuRequest(1, 0.01)),
        (ONE, 995_000, None),
        (ONE, 1_000_000, None),
        (ONE, 2_000_000, None),
        (HALF, 0, GpuRequest(1, 0.5)),
        (HALF, 250_000, GpuRequest(1, 0.25)),
        (TWO, 0, GpuRequest(2)),
        (TWO, 1_000_000, GpuRequest(1)),
        (TWO, 500_000, GpuRequest(1)),  # and a half stays for the next
        (TWO, 1_500_000, GpuRequest(1, 0.5)),
        (TWO_HALVES, 500_000, GpuRequest(1, 0.5)),
        (TWO_HALVES, 250_000, GpuRequest(1, 0.5)),
        (TWO_HALVES, 700_000, GpuRequest(1, 0.3)),
        (EIGHT_GIB, 0, GpuRequest(1, memory_mib=8192)),
        (EIGHT_GIB, 255_000, GpuRequest(1, memory_mib=4096)),
        (EIGHT_GIB, 509_999, None),
        (TWO_EIGHT_GIB, 510_000, GpuRequest(1, memory_mib=8192)),
    ],
)
def test_what_a_kernel_without_a_size_takes(budget: Budget, held: int, part: GpuRequest | None) -> None:
    assert budget.part(budget.total - held, budget.request) == part


def test_filters_servers_and_time_limit_are_those_that_were_asked_for() -> None:
    asked = GpuRequest(1, None, None, (("device.name", "Tesla"),), ("10.0.0.1:56001",), 60.0)
    assert ONE.part(500_000, asked) == GpuRequest(1, 0.5, None, asked.filters, asked.servers, 60.0)


shares = st.integers(1, 100).map(lambda percent: percent / 100) | st.none()
requests = st.builds(GpuRequest, gpus=st.integers(1, 8), partial=shares)
memories = st.builds(GpuRequest, gpus=st.integers(1, 8), memory_mib=st.integers(256, 80_000))


@given(requests | memories, st.integers(1, 800), st.data())
def test_what_is_taken_is_never_more_than_is_left(
    request: GpuRequest, units: int, data: st.DataObject
) -> None:
    budget = Budget(request, units)
    left = data.draw(st.integers(0, budget.total))
    part = budget.part(left, request)
    if part is not None:
        assert 0 < budget.cost(part) <= left
        check_fits(budget, part)
    else:
        assert left < budget.of_each
    assert budget.part(budget.total, request) == request


@given(requests)
def test_shares_count_as_the_scheduler_counts_them(request: GpuRequest) -> None:
    assert Budget(request, 0).total == units(request) * UNIT
    assert WHOLE == 100 * UNIT


@pytest.mark.parametrize(
    ("budget", "request_", "words"),
    [
        (
            HALF,
            GpuRequest(1),
            [
                "This pod's budget is smaller than that.",
                "Asked for: 1 GPU",
                "the budget of this pod is 1 GPU × 50 %, as chosen when the notebook was made",
                "What to do: ask for that at most (`%bitfusion request -n 1 -p 0.5`; "
                "`%bitfusion request --reset` takes what is left), "
                "or stop the notebook and start one with a larger size in the form.",
            ],
        ),
        (
            HALF,
            GpuRequest(1, memory_mib=4096),
            [
                "Asked for: 1 GPU × 4096 MiB",
                "by memory each GPU counts as a whole one here, so ask for a share",
            ],
        ),
        (EIGHT_GIB, GpuRequest(1, memory_mib=8193), ["is 1 GPU × 8192 MiB, as chosen", "-n 1 -m 8192"]),
    ],
)
def test_more_than_the_whole_budget_is_refused_in_words(
    budget: Budget, request_: GpuRequest, words: list[str]
) -> None:
    with pytest.raises(OverBudget) as error:
        check_fits(budget, request_)
    assert isinstance(error.value, BitfusionError)
    for text in words:
        assert text in error.value.user_message


def test_as_much_as_the_whole_budget_in_another_shape_is_not() -> None:
    check_fits(TWO_HALVES, GpuRequest(1))
    check_fits(ONE, GpuRequest(4, 0.25))
