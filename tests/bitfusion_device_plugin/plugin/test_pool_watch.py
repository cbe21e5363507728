"""What becomes of the pool's answers: units, and when the pool is asked next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.plugin.metrics import PluginMetrics
from bitfusion_device_plugin.plugin.pool_probe import PoolAnswer
from bitfusion_device_plugin.plugin.pool_size import PoolHealth, SteadySize
from bitfusion_device_plugin.plugin.pool_watch import PoolWatch
from bitfusion_device_plugin.plugin.unit_devices import OfferedUnits

AWAY = PoolAnswer(None, "no answer", 0.1)


@pytest.mark.parametrize(
    ("answers", "sizes"),
    [
        ([200, 300, 200, 300], [200, 300, 300, 300]),  # one server restarts
        ([300, 200, 200, 200], [300, 300, 300, 200]),
        ([300, 100, 200, 100], [300, 300, 300, 200]),  # the largest of what was said
        ([300, 100, 100, 300, 100, 100], [300] * 6),
        ([300, 200, 200, 400], [300, 300, 300, 400]),
        ([300, 100, 100, 100, 50, 50, 50], [300, 300, 300, 100, 100, 100, 50]),
        ([300, 200, 100, 100], [300, 300, 300, 200]),
    ],
)
def test_a_pool_is_larger_at_once_and_smaller_after_three_answers(
    answers: list[int], sizes: list[int]
) -> None:
    size = SteadySize(3)
    assert [size.saw(units) for units in answers] == sizes


def test_a_pool_that_is_away_takes_nothing_from_anybody_by_being_smaller() -> None:
    size = SteadySize(3)
    assert [size.saw(300), size.saw(100, offered=False)] == [300, 100]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60), st.integers(1, 5))
def test_the_size_is_never_below_the_last_answer_and_was_told_lately(answers: list[int], after: int) -> None:
    size = SteadySize(after)
    for place, units in enumerate(answers):
        now = size.saw(units)
        assert now >= units
        assert now in answers[max(0, place + 1 - after) : place + 1]


def _watch(units: OfferedUnits) -> PoolWatch:
    async def nobody() -> PoolAnswer:
        raise AssertionError

    return PoolWatch(nobody, units, PoolHealth(3, 2), PluginMetrics(), 15.0, 1.0)


@pytest.mark.parametrize(
    ("answers", "offered", "pauses"),
    [
        # There, away, back: three failures a second apart, then every second, then twice.
        ([200, 0, 0, 0, 0, 200, 200], [200, 200, 200, 0, 0, 0, 200], [15, 1, 1, 1, 1, 0.5, 15]),
        # Away from the start.
        ([0, 0, 100, 100], [0, 0, 0, 100], [1, 1, 0.5, 15]),
        # One server of two is missing for a moment, or for good.
        ([200, 100, 200], [200, 200, 200], [15, 1, 15]),
        ([200, 100, 100, 100], [200, 200, 200, 100], [15, 1, 1, 15]),
    ],
)
def test_the_pool_is_asked_sooner_while_it_is_not_what_is_offered(
    answers: list[int], offered: list[int], pauses: list[float]
) -> None:
    units = OfferedUnits()
    watch = _watch(units)
    seen = []
    for answer in answers:
        pause = watch.saw(PoolAnswer(answer, "", 0.1) if answer else AWAY)
        seen.append((units.devices.offered, pause))
    assert seen == list(zip(offered, pauses, strict=True))
