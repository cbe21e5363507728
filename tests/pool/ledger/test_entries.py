"""Entries as others see them."""

from __future__ import annotations

import pytest

from bitfusion_client.request import GpuRequest
from tests.pool.holders import Holders


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (59.9, "59s"), (60, "1m0s"), (245, "4m5s"), (10920, "3h2m")]
)
def test_others_see_for_how_long_somebody_holds(holders: Holders, seconds: float, shown: str) -> None:
    entry = holders.submit(GpuRequest(1, 0.5), "a.py")
    assert entry.granted_at is not None
    assert entry.summary(entry.granted_at + seconds) == f"tester: a.py (1 GPUs, partial 0.5, {shown})"
