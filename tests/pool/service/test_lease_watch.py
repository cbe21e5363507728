"""Leases whose clients are gone, on a ledger that cannot be written."""

from __future__ import annotations

import logging

import pytest

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.service.leases.lease_watch import LeaseWatch
from bitfusion_pool.service.leases.operations import PoolOperations


class FullDisk(PoolOperations):
    """Ends nothing."""

    def __init__(self) -> None:
        pass

    def end_if_unused(self, entry_id: str) -> bool:
        raise PoolUnreadable("", "no room")


def test_a_disk_that_stays_full_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watch = LeaseWatch(FullDisk())
    for _ in range(3):
        watch.add("one")
    watch.add("other")
    assert [record.message for record in caplog.records] == ["lease cannot be ended"] * 2
    assert caplog.records[0].levelno == logging.ERROR
