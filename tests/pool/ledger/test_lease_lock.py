"""The lease lock: created, seen from outside, cleaned up."""

from __future__ import annotations

import os

import pytest

from bitfusion_pool.ledger.lease_lock import LeaseLock, is_held
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.pool_client import PoolClient


def test_a_lock_made_while_a_cleaner_was_faster_is_made_again(
    ledger: Ledger, client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = client.folder / "locks" / "name"
    real = os.fchmod
    removed: list[object] = []

    def fchmod(fd: int, mode: int) -> None:
        real(fd, mode)
        if not removed:
            path.unlink()
            removed.append(path)

    monkeypatch.setattr(os, "fchmod", fchmod)
    lock = LeaseLock.create(str(client.folder), "name", 0o666)
    assert removed
    assert path.exists()
    assert is_held(str(client.folder), "name")
    lock.remove()
