"""The lease of a command."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import ClientFailed
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.client.pools.pool import server_of
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


def test_a_server_that_vanishes_between_grant_and_start_is_an_error(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
        ledger.release(entry.entry_id)
        lock.close()
    with pytest.raises(ClientFailed) as caught:
        server_of((), entry)
    assert str(caught.value) == "server 127.0.0.1:56001 no longer has the GPUs of this request"
