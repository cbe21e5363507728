"""The units of a pod: the scheduler's sum, and nothing for what has no shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.pod_units import LARGEST_COUNT, unit_count, units_of

UNITS = "bitfusion.io/gpu"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def asking(units: object, part: str = "limits", **more: Any) -> dict[str, Any]:
    return {"resources": {part: {UNITS: units, "cpu": "2"}}, **more}


def sidecar(units: object) -> dict[str, Any]:
    return asking(units, restartPolicy="Always")


def pod(containers: Any = (), init: Any = (), **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), "initContainers": list(init), **spec}}


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (50, 50),
        ("50", 50),
        ("5k", 5000),
        ("1e3", 1000),
        ("1Ki", 1024),
        ("1500m", 2),  # rounded up, as the scheduler does
        (0.5, 1),
        (0, 0),
        ("-50", 0),
        ("1e30", LARGEST_COUNT),
        ("9" * 60, LARGEST_COUNT),
        ("9" * 65, 0),
        ("", 0),
        ("fifty", 0),
        ("5 0", 0),
        (True, 0),
        (None, 0),
        ([50], 0),
        (float("inf"), 0),
    ],
)
def test_a_quantity_is_a_count(value: object, count: int) -> None:
    assert unit_count(value) == count


@pytest.mark.parametrize(
    ("raw", "units"),
    [
        (pod([asking("50")]), 50),
        (pod([asking("50"), {"name": "istio-proxy"}, asking("25")]), 75),
        (pod([{"resources": {"limits": {"nvidia.com/gpu": "1", "bitfusion.io/gpu-50": "1"}}}]), 0),
        (pod([asking("50", part="requests")]), 50),
        (pod([{"resources": {"limits": {UNITS: "50"}, "requests": {UNITS: "50"}}}]), 50),
        # init containers run before the others, one at a time
        (pod([asking("50")], [asking("30")]), 50),
        (pod([asking("50")], [asking("80"), asking("60")]), 80),
        # those that restart stay beside the containers, and beside the init containers after them
        (pod([asking("50")], [sidecar("30")]), 80),
        (pod([asking("50")], [sidecar("30"), asking("60")]), 90),
        (pod([asking("50")], [asking("60"), sidecar("30")]), 80),
        (pod([asking("10")], [sidecar("30"), sidecar("30"), asking("5")]), 70),
        (pod([asking("50")], overhead={UNITS: "5"}), 55),
        (pod([asking("1e18")] * 20), LARGEST_COUNT),
    ],
)
def test_a_pod_counts_what_the_scheduler_counts(raw: dict[str, Any], units: int) -> None:
    assert units_of(raw) == units


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"spec": None},
        {"spec": {"containers": None, "initContainers": "none"}},
        pod([None, 3, {"resources": []}, {"resources": {"limits": [UNITS]}}]),
        pod([asking({"amount": 50})], overhead=UNITS),
    ],
)
def test_a_wrong_shape_counts_nothing(raw: dict[str, Any]) -> None:
    assert units_of(raw) == 0


@given(limits=JSON, spec=JSON)
def test_no_shape_raises(limits: Any, spec: Any) -> None:
    assert 0 <= units_of({"spec": spec}) <= LARGEST_COUNT
    assert (
        0 <= units_of(pod([{"resources": {"limits": {UNITS: limits}, "requests": limits}}])) <= LARGEST_COUNT
    )


@given(
    st.lists(st.integers(0, 500), max_size=4),
    st.lists(st.tuples(st.booleans(), st.integers(0, 500)), max_size=5),
)
def test_never_less_than_at_any_moment_of_its_life(running: list[int], init: list[tuple[bool, int]]) -> None:
    raw = pod(map(asking, running), [sidecar(units) if stays else asking(units) for stays, units in init])
    beside, most = 0, 0
    for stays, units in init:
        most = max(most, beside + units)
        beside += units if stays else 0
    assert units_of(raw) == max(most, beside + sum(running))
