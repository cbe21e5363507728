"""Clients on other machines in the ledger: simulated devices only, and names that are no users."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import NeverSatisfiable
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, HELD, REMOTE, WAITING, Entry, Holder
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.pool_client import PoolClient

POOL = """
[[servers]]
name = "real"
address = "127.0.0.1"
port = 56001
devices = [{name = "NVIDIA A2", memory_mib = 15356, uuid = "GPU-0"}]
[[servers]]
name = "simulated"
address = "127.0.0.1"
port = 56002
devices = [{name = "Simulated A2", memory_mib = 15356, count = 1}]
"""
SIMULATED = "127.0.0.1:56002"
FAR = Holder("far.ipynb", "ada", 7, "pod-1", FIRST_TOKEN_NAME)


@pytest.fixture
def mixed(client: PoolClient) -> Ledger:
    """A ledger with a real and a simulated device; nobody has read the real one."""
    client.folder.mkdir(mode=0o700, exist_ok=True)
    (client.folder / "pool.toml").write_text(POOL)
    return client.ledger()


def ask(ledger: Ledger, request: GpuRequest) -> Entry:
    return ledger.submit(request, FAR, kind=REMOTE)[0]


def test_a_remote_client_gets_simulated_devices_only_and_waits_for_them_beside_free_real_ones(
    mixed: Ledger,
) -> None:
    with mixed as ledger:
        first, second = ask(ledger, GpuRequest(1)), ask(ledger, GpuRequest(1))
        assert (first.state, [share.server for share in first.shares]) == (HELD, [SIMULATED])
        assert (second.state, second.servers) == (WAITING, (SIMULATED,))
        assert ledger.queue_position(second).position == 1
        ledger.release(first.entry_id)
        granted = ledger.entry(second.entry_id)
        assert granted is not None
        assert [share.server for share in granted.shares] == [SIMULATED]
        with pytest.raises(NeverSatisfiable, match="2 GPUs with 15356 MiB of memory each"):
            ask(ledger, GpuRequest(2))
        ledger.release(second.entry_id)


def test_names_get_numbers_that_are_no_users_and_keep_them(ledger: Ledger, client: PoolClient) -> None:
    numbers = [ledger.number_of_name(name) for name in ("ada", "bob", "ada", "root")]
    assert numbers == [-2, -3, -2, -4]
    with client.ledger() as other:
        assert other.number_of_name("root") == -4
        assert other.number_of_name("eve") == -5
    assert ledger.client_id(-2) != ledger.client_id(-3)
