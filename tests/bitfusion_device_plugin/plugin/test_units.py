"""Units of a pool: how many, what they are called, when they are healthy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.client_reports import GpuStatus, ServerStatus
from bitfusion_device_plugin.plugin.messages import LONGEST_DEVICE_ID, ListAndWatchResponse
from bitfusion_device_plugin.plugin.pool_size import LARGEST_UNITS, PoolHealth, pool_units
from bitfusion_device_plugin.plugin.unit_devices import UnitDevices


def _servers(*gpus: int) -> list[ServerStatus]:
    return [
        ServerStatus(index, f"10.0.0.{index}:56001", 0, tuple(GpuStatus(n, 1, 2) for n in range(count)))
        for index, count in enumerate(gpus)
    ]


@pytest.mark.parametrize(
    ("gpus", "overcommit", "units"),
    [
        ((), 1.0, 0),
        ((2,), 1.0, 200),
        ((2, 0, 1), 1.0, 300),
        ((1,), 1.1, 110),
        ((3,), 0.29, 87),
        ((1,), 2.555, 255),
        ((1000,), 1.0, LARGEST_UNITS),
        ((1000,), 2.0, LARGEST_UNITS),
    ],
)
def test_a_pool_has_100_units_a_gpu_times_the_overcommit(
    gpus: tuple[int, ...], overcommit: float, units: int
) -> None:
    assert pool_units(_servers(*gpus), overcommit) == units


@pytest.mark.parametrize(
    ("answers", "healthy"),
    [
        ("+", "+"),
        ("-", "-"),
        ("+--+--+---", "+++++++++-"),
        ("---+-++", "------+"),
        ("+---+++---", "+++-" + "-++" + "++-"),
    ],
)
def test_health_changes_after_three_failures_and_two_answers(answers: str, healthy: str) -> None:
    health = PoolHealth(down_after=3, up_after=2)
    assert "".join("+" if health.saw(answer == "+") else "-" for answer in answers) == healthy


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_health_never_changes_against_the_last_answer(answers: list[bool], down: int, up: int) -> None:
    health, before = PoolHealth(down, up), None
    for answer in answers:
        now = health.saw(answer)
        assert now in (before, answer)
        before = now


def test_the_largest_pool_fits_into_a_message_that_the_kubelet_reads() -> None:
    assert len(UnitDevices(LARGEST_UNITS, False).as_message()) < 4 << 20


def test_names_are_the_same_after_every_start_and_growth_adds_some_behind() -> None:
    few, many = list(UnitDevices(3, True).names()), list(UnitDevices(5000, True).names())
    assert few == many[:3] == ["unit-0", "unit-1", "unit-2"]
    assert len(set(many)) == 5000
    assert len(list(UnitDevices(LARGEST_UNITS).names())[-1]) <= LONGEST_DEVICE_ID


@pytest.mark.parametrize(("healthy", "word"), [(True, "Healthy"), (False, "Unhealthy")])
def test_the_message_to_the_kubelet_names_every_unit_with_its_health(healthy: bool, word: str) -> None:
    read = ListAndWatchResponse.FromString(UnitDevices(2, healthy).as_message())
    assert [(device.ID, device.health) for device in read.devices] == [("unit-0", word), ("unit-1", word)]


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        ((), ""),
        (("unit-0", "unit-2"), ""),
        (("unit-1", "unit-3"), "unit-3"),
        (("unit-",), "unit-"),
        (("gpu-0",), "gpu-0"),
        (("unit-01",), "unit-01"),
        (("unit-٣",), "unit-٣"),
        (("unit-" + "9" * 60,), "unit-" + "9" * 60),
    ],
)
def test_what_is_no_unit_is_named(names: tuple[str, ...], unknown: str) -> None:
    assert UnitDevices(3, True).unknown(names) == unknown
