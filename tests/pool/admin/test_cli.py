"""`bitfusion-pool`: status, init, simulate, reap."""

from __future__ import annotations

from tests.pool.pool_client import PoolClient


def test_another_pool_may_be_named(client: PoolClient, tmp_path: object) -> None:
    assert client.admin("--dir", f"{tmp_path}/other", "status").stdout.startswith(
        f"GPU pool in {tmp_path}/other"
    )
