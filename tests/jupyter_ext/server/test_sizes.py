"""The sizes that are offered, and what is free of each now."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.request.gpu_request import GpuRequest
from jupyter_ext.server.sizes import (
    BUDGET_HELD,
    FREE,
    NEXT,
    OVER_BUDGET,
    OVER_SERVERS,
    OfferedSize,
    PodBudget,
    free_now,
    held_request,
    sizes_json,
)

Pool = dict[str, Any]


def pool(*servers: list[int], total: int = 1000, waiting: int = 0) -> Pool:
    """Servers with GPUs of which so much is free."""
    return {
        "servers": [
            {
                "address": "a:1",
                "gpus": [{"free_mib": free, "total_mib": total, "holders": []} for free in gpus],
            }
            for gpus in servers
        ],
        "waiting": [{}] * waiting,
    }


def shown(sizes: list[dict[str, Any]]) -> list[tuple[str, int | None, str]]:
    return [(size["label"], size["free_now"], size["note"]) for size in sizes]


@pytest.mark.parametrize(
    ("request_", "servers", "free"),
    [
        (GpuRequest(), [[1000, 1000]], 2),
        (GpuRequest(), [[1000, 999]], 1),
        (GpuRequest(1, 0.5), [[1000, 500, 499]], 3),
        (GpuRequest(2), [[1000, 1000, 1000]], 1),
        (GpuRequest(2), [[1000], [1000]], 0),
        (GpuRequest(2, 0.5), [[1000, 1000]], 2),
        (GpuRequest(2, 0.5), [[1000, 0]], 0),
        (GpuRequest(2, 0.25), [[1000, 500, 500]], 4),
        (GpuRequest(1, None, 300), [[1000]], 3),
        (GpuRequest(1, 0.0001), [[1000]], 100),
        (GpuRequest(), [], None),
        (GpuRequest(), [[]], None),
    ],
)
def test_what_is_free_is_counted_in_whole_requests(
    request_: GpuRequest, servers: list[list[int]], free: int | None
) -> None:
    assert free_now(request_, pool(*servers)) == free


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 3))
def test_the_count_is_that_of_trying_all(free: list[int], gpus: int, quarters: int) -> None:
    """Each request takes its quarters of as many different GPUs."""

    @functools.cache
    def most(left: tuple[int, ...]) -> int:
        best = 0
        for chosen in itertools.combinations(range(len(left)), gpus):
            if all(left[index] >= quarters for index in chosen):
                rest = tuple(each - quarters * (index in chosen) for index, each in enumerate(left))
                best = max(best, 1 + most(tuple(sorted(rest))))
        return best

    counted = free_now(GpuRequest(gpus, quarters / 4), pool([each * 250 for each in free]))
    assert counted == most(tuple(sorted(free)))


def test_without_a_list_the_pool_makes_the_sizes() -> None:
    assert shown(sizes_json(None, pool([1000, 400], [0]), None)) == [
        ("2 GPUs", 0, NEXT),
        ("1 GPU", 1, FREE),
        ("½ GPU", 2, FREE),
        ("¼ GPU", 5, FREE),
    ]


def test_without_a_pool_there_are_sizes_of_which_nothing_is_known() -> None:
    assert shown(sizes_json(None, pool(), None)) == [
        ("1 GPU", None, ""),
        ("½ GPU", None, ""),
        ("¼ GPU", None, ""),
    ]


def test_a_cluster_offers_whole_gpus_of_which_nothing_is_known() -> None:
    assert shown(sizes_json(None, pool([0, 0], total=0), None)) == [("2 GPUs", None, ""), ("1 GPU", None, "")]


def test_nobody_overtakes_those_who_wait() -> None:
    sizes = sizes_json([OfferedSize("half", GpuRequest(1, 0.5))], pool([1000], waiting=2), None)
    assert shown(sizes) == [("half", 2, "would wait: 2 before you")]
    assert sizes[0]["possible"]


def test_the_admins_sizes_are_told_with_what_cannot_be() -> None:
    offered = [
        OfferedSize("whole", GpuRequest()),
        OfferedSize("eight", GpuRequest(8)),
        OfferedSize("memory", GpuRequest(1, None, 400)),
        OfferedSize("half", GpuRequest(1, 0.5)),
    ]
    budget = PodBudget(GpuRequest(1, 0.5))
    told = sizes_json(offered, pool([1000, 1000]), None)
    assert [(size["note"], size["possible"]) for size in told] == [
        (FREE, True),
        (OVER_SERVERS, False),
        (FREE, True),
        (FREE, True),
    ]
    assert told[2]["words"] == "-n 1 -m 400"
    told = sizes_json(offered, pool([1000, 1000]), budget)
    assert [size["note"] for size in told] == [OVER_BUDGET, OVER_BUDGET, OVER_BUDGET, FREE]
    assert [size["possible"] for size in told] == [False, False, False, True]


def test_a_pods_budget_comes_first_and_caps_what_is_made() -> None:
    budget = PodBudget(GpuRequest(1, 0.5), 50)
    assert shown(sizes_json(None, pool([1000, 1000]), budget)) == [
        ("1 GPU × 50 %", 4, FREE),
        ("¼ GPU", 8, FREE),
    ]
    held = PodBudget(GpuRequest(1, 0.5), 50, (GpuRequest(1, 0.25),))
    assert shown(sizes_json(None, pool([1000, 1000]), held)) == [
        ("1 GPU × 50 %", 4, BUDGET_HELD),
        ("¼ GPU", 8, FREE),
    ]


@pytest.mark.parametrize(
    ("state", "held"),
    [
        ({"granted_at": 1.0, "request": {"text": "x", "gpus": 2, "partial": 0.5}}, GpuRequest(2, 0.5)),
        ({"granted_at": None, "request": {"gpus": 2}}, None),
        ({"granted_at": 1.0, "request": None}, None),
        ({"granted_at": 1.0, "request": {"gpus": "x"}}, None),
        ({}, None),
    ],
)
def test_what_a_kernel_holds_is_read_of_its_state(state: dict[str, Any], held: GpuRequest | None) -> None:
    assert held_request(state) == held
