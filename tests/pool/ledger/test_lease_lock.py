"""The lease lock: created, seen from outside, cleaned up."""

from __future__ import annotations

import fcntl

import pytest

from bitfusion_pool.ledger.files.lease_lock import LeaseLock, is_held
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.pool_client import PoolClient


def test_a_lock_made_while_a_cleaner_was_faster_is_made_again(
    ledger: Ledger, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = client.folder / "locks" / "name"
    real = fcntl.flock
    removed: list[object] = []

    def flock(fd: int, operation: int) -> None:
        if not removed:
            path.unlink()
            removed.append(path)
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = LeaseLock.create(str(client.folder), "name")
    assert removed
    assert path.exists()
    assert is_held(str(client.folder), "name")
    lock.remove()
