"""Whether GPUs are given back before others are asked for, or kept until these have come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.pod.this_pod import ThisPod
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic.resize_order import gives_back_first
from bitfusion_kernel.pod.account import Standing
from bitfusion_kernel.pod.budget import Budget
from bitfusion_kernel.pod.facts import Pod
from bitfusion_kernel.pod.turns import Entry

FILES = ThisPod("digits-0", "team-a", "digits", "digits", "-n 1", "stand-in", "1", "100")
HERE, THERE = "10.0.0.1:56001", "10.0.0.2:56001"
WHOLE, HALF = 16160, 8080


def held(request: GpuRequest, mib: int | None, *gpus: int, server: str = HERE) -> Acquisition:
    acquisition = Acquisition(1, request, 0.0)
    acquisition.server, acquisition.memory_mib, acquisition.gpu_ids = server, mib, gpus
    return acquisition


def pool(here: list[int], there: list[int] | None = None) -> str:
    """`list_gpus` of servers whose GPUs have so much free memory."""
    lines = []
    for number, (address, gpus) in enumerate(((HERE, here), (THERE, there or []))):
        lines.append(f"- server {number} [{address}]: running 1 tasks")
        lines += [f"   |- GPU {gpu}: free memory {free} MiB / {WHOLE} MiB" for gpu, free in enumerate(gpus)]
    return "\n".join(lines)


ONE = held(GpuRequest(1), WHOLE, 0)
HALF_ONE = held(GpuRequest(1, 0.5), HALF, 0)


@pytest.mark.parametrize(
    ("has", "wants", "output", "first"),
    [
        (ONE, GpuRequest(1, 0.5), pool([0]), True),  # of the one GPU that there is
        (ONE, GpuRequest(1, 0.5), pool([0, WHOLE]), False),  # of the other one
        (ONE, GpuRequest(2), pool([0, WHOLE]), True),
        (ONE, GpuRequest(2), pool([0, 0]), False),  # someone else's: waiting is all that is left
        (ONE, GpuRequest(2), pool([0, WHOLE, WHOLE]), False),
        (ONE, GpuRequest(2), pool([0], [WHOLE, WHOLE]), False),
        (HALF_ONE, GpuRequest(1), pool([HALF]), True),
        (HALF_ONE, GpuRequest(1), pool([0]), False),  # the other half is someone else's
        (HALF_ONE, GpuRequest(1, 0.25), pool([HALF]), False),
        (HALF_ONE, GpuRequest(1, None, 12000), pool([HALF]), True),
        (HALF_ONE, GpuRequest(1, servers=(THERE,)), pool([HALF], [WHOLE]), False),
        (HALF_ONE, GpuRequest(1, servers=(THERE,)), pool([HALF], [0]), False),
        (HALF_ONE, GpuRequest(1, servers=("elsewhere:1",)), pool([HALF]), False),  # who knows
        (held(GpuRequest(1), None, 0), GpuRequest(2), pool([0, WHOLE]), False),  # no client has told
        (held(GpuRequest(1), WHOLE, 0, server=THERE), GpuRequest(2), pool([0, WHOLE]), False),
        (ONE, GpuRequest(2), "of an unknown form", False),
        (ONE, GpuRequest(2), "", False),
    ],
)
def test_only_where_there_is_room_without_the_old_size_and_none_beside_it(
    has: Acquisition, wants: GpuRequest, output: str, first: bool
) -> None:
    assert gives_back_first(wants, has, output, None) is first


@given(
    st.lists(st.sampled_from([0, HALF, WHOLE]), max_size=4), st.integers(1, 4), st.sampled_from([None, 0.5])
)
def test_what_fits_beside_is_never_preceded_by_giving_back(
    free: list[int], gpus: int, partial: float | None
) -> None:
    needed = WHOLE if partial is None else HALF
    beside = sum(mib >= needed for mib in free) >= gpus
    if gives_back_first(GpuRequest(gpus, partial), ONE, pool([0, *free]), None):
        assert not beside
        assert sum(mib >= needed for mib in [WHOLE, *free]) >= gpus


@pytest.mark.parametrize(
    ("others", "wants", "output", "first"),
    [
        (0.0, GpuRequest(1), pool([HALF, WHOLE]), True),  # the pool has room for both, the pod has not
        (0.0, GpuRequest(1, 0.5), pool([HALF, WHOLE]), False),
        (0.5, GpuRequest(1), pool([HALF, WHOLE]), False),  # another notebook of this pod has the rest
        (0.0, GpuRequest(1), pool([0, 0]), False),  # without its own the pod had room, the pool has not
    ],
)
def test_the_budget_of_a_pod_counts_too(others: float, wants: GpuRequest, output: str, first: bool) -> None:
    sizes = [0.5, others] if others else [0.5]
    entries = [Entry(n, "a.ipynb", GpuRequest(1, size), False, True, 0.0) for n, size in enumerate(sizes)]
    pod = Pod(FILES, Budget(GpuRequest(1), 100), "/bitfusion")
    assert gives_back_first(wants, HALF_ONE, output, Standing(pod, tuple(entries))) is first
