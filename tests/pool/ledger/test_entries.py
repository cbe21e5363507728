"""Entries as others see them."""

from __future__ import annotations

import pytest

from bitfusion_client.clock_time import clock_time
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import size_text
from tests.pool.holders import Holders


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        (GpuRequest(1), "1 GPU"),
        (GpuRequest(1, 1.0), "1 GPU"),
        (GpuRequest(2, 0.5, filters=(("device.name", "x"),)), "2 GPUs × 50 %"),
        (GpuRequest(1, memory_mib=8000), "1 GPU × 8000 MiB"),
    ],
)
def test_sizes_are_written_as_everywhere_else(request_: GpuRequest, size: str) -> None:
    assert size_text(request_) == size


def test_others_see_since_when_somebody_holds(holders: Holders) -> None:
    entry = holders.submit(GpuRequest(1, 0.5), "a.py")
    assert entry.granted_at is not None
    since = clock_time(entry.granted_at, entry.granted_at)
    assert entry.summary(entry.granted_at + 59) == f"tester: a.py (1 GPU × 50 %, since {since})"
